"""Threads that are used again."""

from __future__ import annotations

import os
import threading
import time
import weakref

import pytest

from streamplug.transfer import pool
from streamplug.transfer.pool import Job, end_idle_threads, run_on_thread


def run(work=lambda: None):
    """Do something on a thread; return which it was."""

    def work_here():
        work()
        return threading.current_thread()

    job = Job(work_here)
    run_on_thread(job)
    assert job.wait(30)
    return job.result


@pytest.fixture(autouse=True)
def _lasting(monkeypatch):
    monkeypatch.setattr(pool, "IDLE_SECONDS", 60)


def test_a_thread_is_used_again():
    assert len({run() for _ in range(50)}) == 1


def test_threads_end_without_work(monkeypatch):
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.01)
    end_idle_threads()
    thread = run()
    thread.join(30)
    assert not thread.is_alive()
    assert thread not in pool._idle


def test_idle_threads_can_be_ended_at_once():
    thread = run()
    end_idle_threads()
    assert not thread.is_alive()


def test_work_at_the_same_time_is_on_threads_of_its_own():
    barrier, numbers = threading.Barrier(8), []
    for _ in range(7):
        run_on_thread(Job(lambda: numbers.append(barrier.wait(30))))
    numbers.append(barrier.wait(30))
    end_idle_threads()


def test_no_work_is_lost_when_threads_end_just_then(monkeypatch):
    monkeypatch.setattr(pool, "IDLE_SECONDS", 1e-5)
    for _ in range(500):
        run()


def test_what_was_done_is_freed():
    class Large:
        pass

    large = Large()
    known = weakref.ref(large)
    run(lambda large=large: None)
    del large
    deadline = time.monotonic() + 30
    while known() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_begins_with_none():
    thread = run()
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    assert not thread.is_alive()  # it is a process of one thread that is forked
    assert os.waitpid(child, 0)[1] == 0
