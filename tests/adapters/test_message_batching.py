"""Batches that workers hand over several at a time."""

from __future__ import annotations

import sys
from itertools import islice

import pytest

from streamplug.adapters.message_batching import (
    MAX_BATCHES_PER_MESSAGE,
    WorkerError,
    group_batches,
    messages_after,
    round_robin,
    worker_batches,
)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("streamplug.adapters.message_batching._MAX_MESSAGE_SECONDS", 600.0)


class Wrapped:
    """What a worker sends of an error."""

    def __init__(self):
        self.error = sys.exc_info()[1]

    def reraise(self):
        raise type(self.error)(*self.error.args)


def group(batches, worker=0, nbytes=0, max_batches=lambda: MAX_BATCHES_PER_MESSAGE):
    return group_batches(
        batches, lambda _: nbytes, worker, max_batches=max_batches, wrap_error=Wrapped
    )


def bundles(batches, worker=0, nbytes=0):
    return list(group(batches, worker, nbytes))


def take_turns(messages, workers):
    return list(round_robin(messages, workers, [0]))


def failing(numbers, error):
    yield from numbers
    raise error


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


def test_an_error_is_in_the_message_of_the_batches_before_it():
    found = list(group(failing(range(5), KeyError("sixth"))))
    assert [some for _, some, _ in found] == [[0], [1, 2], [3, 4]]
    assert [end for *_, end in found[:-1]] == [False, False]
    assert found[-1][2].error.args == ("sixth",)


def test_an_interrupt_is_not_sent():
    with pytest.raises(KeyboardInterrupt):
        list(group(failing(range(5), KeyboardInterrupt())))


@pytest.mark.parametrize("are_alone", [True, False])
@pytest.mark.parametrize("count", [0, 1, 5, 20])
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_an_error_is_raised_in_the_turn_of_its_batch(count, failed, are_alone):
    """Whatever was sent before it: here others send one batch at a time, or all at once."""

    def messages_of(worker):
        if worker == failed:
            return [(worker, list(range(worker, 3 * count, 3)), Wrapped())]
        share = list(range(worker, 60, 3))
        whole = [(worker, [n], False) for n in share] if are_alone else [(worker, share, False)]
        return [*whole, (worker, [], True)]

    each = [messages_of(worker) for worker in range(3)]
    sent = [own[turn] for turn in range(max(map(len, each))) for own in each if turn < len(own)]
    found = []
    with pytest.raises(WorkerError):
        found.extend(round_robin(sent, 3, [0]))
    assert found == list(range(min(3 * count + failed, 60)))


def test_the_error_of_a_worker_is_raised_where_its_messages_come_from():
    closed = []

    def source():
        try:
            yield 0, (0, ["a"], False)
            yield 0, (0, [], wrapped)
            raise AssertionError("not to be asked for")
        except KeyError as error:
            closed.append(error)
            raise

    try:
        raise KeyError("mine")
    except KeyError:
        wrapped = Wrapped()
    found, limit = [], [8]
    with pytest.raises(KeyError, match="mine") as caught:
        found.extend(worker_batches(source(), 0, 1, limit))
    assert (found, closed) == (["a"], [caught.value])
    assert caught.value.__context__ is None


def test_messages_of_another_world_are_left_out_but_not_their_errors():
    wrapped = object()
    sent = [(0, (0, ["a"], False)), (1, (1, ["b"], True)), (0, (0, ["c"], wrapped))]
    assert list(messages_after(1, sent)) == [(1, ["b"], True), (0, [], wrapped)]


@pytest.mark.parametrize("slow", [0, 1])
def test_batches_of_a_fast_worker_do_not_pile_up(slow):
    limit, waiting, most = [MAX_BATCHES_PER_MESSAGE], [0, 0], 0

    def own(worker):
        return group(
            range(worker, 4000, 2), worker, max_batches=lambda: 1 if worker == slow else limit[0]
        )

    def messages():
        for pair in zip(own(0), own(1)):  # as torch asks for them
            for message in pair:
                waiting[message[0]] += len(message[1])
                yield 0, message

    found = []
    for batch in worker_batches(messages(), 0, 2, limit):
        found.append(batch)
        waiting[batch % 2] -= 1
        most = max(most, *waiting)
        if len(found) == 3000:
            break
    assert found == list(range(3000))
    assert most <= 4 * MAX_BATCHES_PER_MESSAGE
    assert limit == [1]
    assert list(worker_batches(iter([(0, (0, [], True))]), 0, 1, limit)) == []
    assert limit == [MAX_BATCHES_PER_MESSAGE]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 40, 41])
def test_batches_come_as_if_each_had_been_sent_alone(workers, count):
    assert take_turns(dealt(count, workers), workers) == list(range(count))


def test_workers_with_fewer_batches_are_passed_over():
    sent = [(0, ["a"], True), (1, ["b", "c", "d"], True)]
    assert take_turns(sent, 2) == ["a", "b", "c", "d"]


def test_no_more_is_asked_for_than_is_needed():
    asked = []

    def sent():
        for bundle in dealt(40, 2):
            asked.append(bundle)
            yield bundle

    assert list(islice(round_robin(sent(), 2, [0]), 3)) == [0, 1, 2]
    assert len(asked) == 3
