"""Threads that fetch: how many jobs run at once, and how heavy they are."""

from __future__ import annotations

import threading
import time

import pytest

from streamplug.fetch.workers import Workers


@pytest.fixture
def workers():
    made = []

    def make(*args):
        made.append(Workers(*args))
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
