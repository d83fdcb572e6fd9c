"""Apportionment: every stream gets its slots, evenly, and every slot can be asked by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from streamplug_mixing.interleave import MAX_SLOTS, Interleaving, multiply_divide

from streamplug.errors import ConfigError

counts_of = st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(any)


def turns(counts, rounds=1):
    total = sum(counts)
    streams, numbers = Interleaving(counts).streams_at(np.arange(rounds * total))
    return streams.tolist(), numbers.tolist()


@given(counts_of)
def test_streams_have_their_slots_and_take_their_turns_in_order(counts):
    had = [0] * len(counts)
    for stream, number in zip(*turns(counts, rounds=2)):
        assert number == had[stream]
        had[stream] += 1
    assert had == [2 * count for count in counts]


@given(counts_of)
def test_any_beginning_has_every_stream_by_its_share(counts):
    streams, _ = turns(counts)
    had = np.cumsum(np.eye(len(counts))[streams], axis=0)
    shares = np.outer(np.arange(1, sum(counts) + 1), np.array(counts) / sum(counts))
    worst = np.abs(had - shares).max()
    assert worst <= 1 + 1e-9 if len(counts) <= 3 else worst < 1.5


@given(counts_of, st.data())
def test_slots_are_found_again(counts, data):
    it = Interleaving(counts)
    slot = data.draw(st.integers(0, 3 * it.total - 1))
    (stream,), (turn,) = it.streams_at(np.array([slot]))
    assert it.slot_of(int(stream), int(turn)) == slot
    before = it.turns_before(slot)
    assert before[stream] == turn
    assert sum(before) == slot


@given(st.lists(st.integers(0, MAX_SLOTS // 4), min_size=1, max_size=4).filter(any), st.data())
def test_slots_of_trillions_are_exact(counts, data):
    assume(sum(counts) < MAX_SLOTS)
    it = Interleaving(counts)
    slots = data.draw(st.lists(st.integers(0, it.total - 1), min_size=1, max_size=5))
    for slot, stream, turn in zip(slots, *it.streams_at(np.array(slots))):
        assert it.slot_of(int(stream), int(turn)) == slot
        assert it.turns_before(slot)[stream] == turn


@given(st.integers(0, MAX_SLOTS - 1), st.integers(0, MAX_SLOTS - 1), st.integers(1, MAX_SLOTS - 1))
def test_products_are_exact(x, times, by):
    assume(times <= by)
    found = multiply_divide(*(np.array([value]) for value in (x, times, by, by // 2)))
    assert found.tolist() == [(x * times + by // 2) // by]


@pytest.mark.parametrize("counts", [[], [0, 0], [MAX_SLOTS]])
def test_what_cannot_be_dealt_is_refused(counts):
    with pytest.raises(ConfigError, match="cannot be interleaved"):
        Interleaving(counts)


def test_no_slots_have_no_turns():
    streams, numbers = Interleaving([3, 2]).streams_at(np.empty(0, np.int64))
    assert len(streams) == len(numbers) == 0


def test_an_example():
    assert turns([3, 1]) == ([0, 0, 1, 0], [0, 1, 0, 2])
