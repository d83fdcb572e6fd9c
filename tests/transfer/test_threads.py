"""Threads that are used again."""

from __future__ import annotations

import os
import threading
import time

import pytest

from streamplug.transfer import threads
from streamplug.transfer.threads import end_idle, make_ready, on_thread


def run(work=lambda: None):
    """Do something on a thread; return which it was."""
    done, found = threading.Event(), []

    def told():
        work()
        found.append(threading.current_thread())

    on_thread("streamplug-test", told, done.set)
    assert done.wait(30)
    return found[0]


def idle():
    return [t for t in threading.enumerate() if t.name == "streamplug-idle"]


def wait_until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_thread_is_used_again():
    assert len({run() for _ in range(50)}) < 50


def test_threads_end_when_there_is_nothing_to_do():
    thread = run()
    wait_until(lambda: not thread.is_alive())
    wait_until(lambda: not idle())


def test_idle_threads_end_when_told():
    end_idle()
    run()
    assert len(idle()) == 1
    end_idle()
    assert idle() == []


def test_threads_are_made_ready_for_what_comes(monkeypatch):
    monkeypatch.setattr(
        "streamplug.transfer.threads._LINGER", 60
    )  # none ends while it is looked for
    make_ready(3)
    wait_until(lambda: len(idle()) >= 3)
    there = set(threading.enumerate())
    assert run() in there
    wait_until(lambda: end_idle() or not idle())


def test_where_there_are_no_more_threads_none_are_made_ready(monkeypatch):
    def none(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    threads.make_ready(3)


def test_things_at_the_same_time_are_on_threads_of_their_own():
    together = threading.Barrier(8)
    found = []
    for _ in range(7):
        on_thread("streamplug-test", lambda: found.append(together.wait(30)), lambda: None)
    found.append(together.wait(30))
    wait_until(lambda: len(found) == 8)
    assert sorted(found) == list(range(8))


def test_none_are_lost_when_threads_end_just_then(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.threads._LINGER", 1e-5)
    for _ in range(500):
        run()


def test_what_was_done_is_let_go():
    class Large:
        pass

    import weakref

    large = Large()
    known = weakref.ref(large)
    run(lambda large=large: None)
    del large
    wait_until(lambda: known() is None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_begins_with_none():
    run()
    waiting = [each.thread for each in threads._waiting]
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    # They ended before: it is a process of one thread that is forked.
    assert not any(thread.is_alive() for thread in waiting)
    assert os.waitpid(child, 0)[1] == 0
