"""The seconds of a loop in `next()` are divided among their causes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.transfer.loop_clock import (
    CAUSES,
    DECODE,
    HANDOVER,
    STORAGE,
    TRANSFORM,
    LoopClock,
    WorkTime,
)


@pytest.fixture
def now(monkeypatch):
    """The time that clocks show, in a list of one number."""
    time = [0.0]
    monkeypatch.setattr("streamplug.transfer.loop_clock.perf_counter", lambda: time[0])
    return time


def test_time_counts_for_the_innermost_cause(now):
    clock = LoopClock()
    for at, cause in ((10, HANDOVER), (11, DECODE), (13, STORAGE), (17, None), (25, None)):
        now[0] = at
        passed = clock.leave() if cause is None else clock.enter(cause)
    assert passed == 8
    now[0] = 41
    clock.leave()
    now[0] = 100  # the step of the user
    clock.enter(TRANSFORM)
    now[0] = 132
    clock.leave()
    assert clock.seconds == [4, 2 + 8, 32, 1 + 16]


@pytest.mark.parametrize(
    ("began", "ended", "shared"),
    [(0, 50, 10), (14, 18, 4), (0, 15, 5), (0, 10, 0), (30, 40, 0), (17, 60, 3)],
)
def test_a_wait_for_a_worker_has_the_causes_of_its_work_meanwhile(now, began, ended, shared):
    clock = LoopClock()
    now[0] = 10.0
    clock.enter(HANDOVER)
    now[0] = 20.0
    clock.leave_to(WorkTime(began, ended, (0.0, 1.0, 3.0, 0.0)))
    assert clock.seconds == [0, shared / 4, shared * 3 / 4, 10 - shared]


def test_work_of_which_nothing_is_known_is_handed_over(now):
    clock = LoopClock()
    clock.enter(HANDOVER)
    now[0] = 3.0
    clock.leave_to(WorkTime())
    assert clock.seconds == [0, 0, 0, 3]


def test_what_was_counted_is_taken_once(now):
    clock = LoopClock()
    for start in (5, 50):
        now[0] = start
        clock.enter(HANDOVER)
        now[0] += 1
        clock.enter(TRANSFORM)
        now[0] += 3
        clock.leave()
        clock.leave()
        work = clock.take()
        assert (work.began, work.ended, work.seconds) == (start, start + 4, (0, 0, 3, 1))


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, *range(len(CAUSES))]))))
def test_all_time_inside_of_causes_is_counted(steps):
    with pytest.MonkeyPatch.context() as patch:
        now, depth, expected, clock = 0, 0, 0, LoopClock()
        patch.setattr("streamplug.transfer.loop_clock.perf_counter", lambda: now)
        for seconds, cause in steps:
            now += seconds
            expected += seconds if depth else 0
            if cause is not None:
                clock.enter(cause)
                depth += 1
            elif depth:
                clock.leave()
                depth -= 1
            else:
                continue
        while depth:
            clock.leave()
            depth -= 1
        assert sum(clock.seconds) == expected
