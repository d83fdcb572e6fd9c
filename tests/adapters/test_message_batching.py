"""Batches that workers hand over several at a time."""

from __future__ import annotations

from itertools import islice

import pytest

from streamplug.adapters.message_batching import group_batches, round_robin


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("streamplug.adapters.message_batching._MAX_MESSAGE_SECONDS", 600.0)


def bundles(batches, worker=0, nbytes=0):
    return list(group_batches(batches, lambda _: nbytes, worker))


def dealt(count, workers):
    """Return the bundles of some workers, in the order in which torch asks for them."""
    each = [bundles(range(worker, count, workers), worker) for worker in range(workers)]
    found = []
    for turn in range(max(map(len, each))):
        found += [own[turn] for own in each if turn < len(own)]
    return found


def test_bundles_grow_and_hold_everything_in_order():
    found = bundles(range(20), worker=3)
    assert [len(some) for _, some, _ in found] == [1, 2, 4, 8, 5]
    assert [batch for _, some, _ in found for batch in some] == list(range(20))
    assert {worker for worker, _, _ in found} == {3}
    assert [last for *_, last in found] == [False] * 4 + [True]


@pytest.mark.parametrize("count", [0, 1, 3, 7, 15])
def test_the_last_bundle_says_so(count):
    found = bundles(range(count))
    assert [last for *_, last in found] == [False] * (len(found) - 1) + [True]
    assert [batch for _, some, _ in found for batch in some] == list(range(count))


def test_large_batches_go_one_by_one():
    assert [len(some) for _, some, _ in bundles(range(5), nbytes=1 << 20)] == [1] * 5 + [0]


def test_batches_that_take_long_go_one_by_one(monkeypatch):
    monkeypatch.setattr("streamplug.adapters.message_batching._MAX_MESSAGE_SECONDS", -1.0)
    assert [len(some) for _, some, _ in bundles(range(5))] == [1] * 5 + [0]


def test_an_error_comes_after_the_batches_before_it():
    def batches():
        yield from range(5)
        raise KeyError("sixth")

    found = []
    with pytest.raises(KeyError, match="sixth"):
        found.extend(group_batches(batches(), lambda _: 0, 0))
    assert [batch for _, some, _ in found for batch in some] == list(range(5))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 40, 41])
def test_batches_come_as_if_each_had_been_sent_alone(workers, count):
    assert list(round_robin(dealt(count, workers), workers)) == list(range(count))


def test_workers_with_fewer_batches_are_passed_over():
    sent = [(0, ["a"], True), (1, ["b", "c", "d"], True)]
    assert list(round_robin(sent, 2)) == ["a", "b", "c", "d"]


def test_no_more_is_asked_for_than_is_needed():
    asked = []

    def sent():
        for bundle in dealt(40, 2):
            asked.append(bundle)
            yield bundle

    assert list(islice(round_robin(sent(), 2), 3)) == [0, 1, 2]
    assert len(asked) == 3
