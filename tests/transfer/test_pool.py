"""Threads that fetch: how many jobs run at once, and how heavy they are."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import StreamplugError
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside, sleep
from streamplug.transfer import pool as workers_module
from streamplug.transfer.decode_pool import decode_blocks
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.pool import ThreadPool, map_threads
from streamplug.transfer.prefetch import PrefetchLimits, prefetch_blocks
from streamplug.transfer.stall_timeout import run_with_timeout
from tests.start_methods import in_fork


@pytest.fixture
def workers():
    made = []

    def make(*args):
        made.append(ThreadPool(*args))
        return made[-1]

    yield make
    for each in made:
        each.stop()


class Meter:
    """Jobs that note what runs at the same time."""

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), [], []

    def job(self, weight):
        def work():
            with self.lock:
                self.now.append(weight)
                self.most.append(list(self.now))
            time.sleep(0.005)
            with self.lock:
                self.now.remove(weight)

        return work


def test_few_results_wait_for_a_slow_consumer():
    made, most = [], 0
    for number, result in enumerate(
        map_threads(lambda item: made.append(item) or item, range(500), 3)
    ):
        assert result == number
        time.sleep(0.0005)
        most = max(most, len(made) - number)
    assert len(made) == 500
    assert 1 <= most <= 13


def test_what_runs_at_once_is_bounded_in_number_and_in_weight(workers):
    meter, pool = Meter(), workers(3, 100)
    for job in [pool.submit(meter.job(weight), weight) for weight in (60, 30, 500, 5, 5, 5, 5, 99)]:
        job.wait()
        assert job.error is None
    assert len(meter.most) == 8
    assert max(map(len, meter.most)) <= 3
    assert all(sum(weights) <= 100 for weights in meter.most if len(weights) > 1)
    assert [500] in meter.most  # it would not fit, and ran alone
    assert pool.unfinished == pool.weight == 0


def test_light_jobs_do_run_at_once(workers):
    meeting = threading.Barrier(3)
    pool = workers(8, 100)
    for job in [pool.submit(lambda: meeting.wait(20), 30) for _ in range(3)]:
        job.wait()
        assert job.error is None


def test_whoever_waits_for_what_was_not_begun_is_told_when_all_stops(workers):
    pool, began = workers(1), threading.Event()

    def long():
        began.set()
        sleep(600)

    pool.submit(long)
    queued = pool.submit(lambda: None)
    assert began.wait(20)
    pool.stop()
    for job in (queued, pool.submit(lambda: None)):
        assert job.done
        assert isinstance(job.error, Cancelled)


def test_a_job_that_no_thread_can_be_started_for_is_an_error(workers, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    pool, start = workers(4), threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pool.submit(lambda: None)
    monkeypatch.setattr(threading.Thread, "start", start)
    pool.submit(lambda: None).wait()  # the next one finds a thread, for both
    pool.stop()
    assert pool.unfinished == 0


def test_an_interrupt_while_a_thread_starts_is_no_thread_less(workers, monkeypatch):
    pool, start, done = workers(4), threading.Thread.start, threading.Event()

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(done.set)
    monkeypatch.undo()
    assert done.wait(20)
    pool.stop()
    assert not any(thread.is_alive() for thread in pool._threads)


def test_a_thread_that_stops_the_others_does_not_wait_for_itself(workers, monkeypatch):
    monkeypatch.setattr(workers_module, "STOP_SECONDS", 3600.0)
    one, ended = workers(1), threading.Event()

    def stop():
        one.stop()
        ended.set()

    one.submit(stop)
    assert ended.wait(60)
    assert isinstance(one.submit(stop).error, Cancelled)


def test_no_further_item_is_begun_for_a_caller_that_was_stopped():
    scope, begun = Scope(), []

    def work(item):
        begun.append(item)
        if item == 3:
            scope.stop()
        time.sleep(0.005)

    with inside(scope), pytest.raises(Cancelled):
        list(map_threads(work, range(100), 2))
    assert len(begun) < 20
    count = len(begun)
    time.sleep(0.05)
    assert len(begun) == count


@pytest.mark.parametrize("count", [1, 3])
def test_a_stop_iteration_of_the_function_is_an_error_rather_than_the_end(count):
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(map_threads(lambda _: next(iter(())), range(count), 2))


class Failing:
    """Work that fails, and a reference to what it had open."""

    def __init__(self):
        self.refs = []

    def __call__(self, *_):
        opened = Scope()
        self.refs.append(weakref.ref(opened))
        with map_disk_errors(Path("place")):
            raise OSError(28, "No space left on device")

    def closed(self):
        return [ref() is None for ref in self.refs]


class Blocks:
    """One block, which needs two keys, and the reader of it."""

    ids = np.arange(2)

    def __init__(self, ensure):
        self.ensure = ensure
        self.claim = self.release = lambda _: None

    def split(self):
        return [self]

    def needs(self, ids):
        return ids.tolist()

    def weight(self, key):
        return 1


def decode_slowly(failing):
    def decode(number):
        if number > 3:
            failing()
        time.sleep(0.006)  # long enough for threads
        return [number]

    return decode_blocks(range(9), decode, 2)


def prefetch(failing):
    blocks = Blocks(failing)
    return prefetch_blocks([blocks], blocks, lambda _: failing(), PrefetchLimits())


@pytest.mark.parametrize(
    "read",
    [
        lambda failing: run_with_timeout(failing, "url", 60.0),
        lambda failing: list(map_threads(failing, range(4), 2)),
        lambda failing: list(decode_slowly(failing)),
        lambda failing: list(prefetch(failing)),
    ],
    ids=["run_with_timeout", "map_threads", "decode_blocks", "prefetch_blocks"],
)
def test_what_failed_jobs_had_open_is_closed_with_their_errors(read):
    failing = Failing()
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(StreamplugError) as raised:
            read(failing)
        assert failing.refs
        raised = None  # noqa: F841 - the error
        assert all(failing.closed())
    finally:
        gc.enable()


def test_a_fork_neither_waits_for_jobs_of_its_parent_nor_adds_some(workers):
    pool, gate = workers(1), threading.Event()
    done, running = pool.submit(lambda: 7), pool.submit(gate.wait)
    done.wait()

    def use():
        assert done.wait()
        assert done.result == 7
        with pytest.raises(
            StreamplugError, match=f"those of process {os.getppid()}, .* fork: start a new"
        ):
            running.wait()
        with pytest.raises(StreamplugError, match="start a new iteration"):
            pool.submit(lambda: 8)
        pool.stop()
        return 0

    assert in_fork(use) == 0
    gate.set()
    assert running.wait(20)
    assert pool.submit(lambda: 9).wait(20)


def test_an_iteration_does_not_hang_in_a_fork(tmp_path):
    with MDSWriter(out=tmp_path / "far", columns={"n": "int"}, max_samples_per_shard=1) as out:
        for n in range(1000):
            out.write({"n": n})
    dataset = StreamingDataset(
        remote=str(tmp_path / "far"), local=str(tmp_path / "near"), batch_size=1
    )
    iterator = iter(dataset)
    first = [next(iterator)["n"] for _ in range(5)]

    def go_on():
        with pytest.raises(StreamplugError, match="start a new iteration"):
            list(iterator)
        assert len(list(dataset)) == 1000
        return 0

    assert in_fork(go_on) == 0
    assert first + [sample["n"] for sample in iterator] == list(range(1000))


EXIT = """
import multiprocessing.util, threading, weakref
from streamplug.plugin_kit.cancellation import sleep
from streamplug.transfer.pool import ThreadPool, map_threads

class Client:
    pass

client, closed, running = Client(), threading.Event(), threading.Event()
weakref.finalize(client, closed.set)

def work():
    running.set()
    try:
        sleep(60)
    finally:
        print("closed" if closed.is_set() else "open")

pool = ThreadPool(1)
pool.submit(work)
running.wait()
"""


def test_jobs_are_stopped_at_exit_before_clients_close_their_connections():
    command = [sys.executable, "-c", EXIT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "open\n"
