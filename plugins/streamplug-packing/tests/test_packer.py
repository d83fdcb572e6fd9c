"""Packing by best fit: nothing lost, nothing above the limit, bounded waiting, little space left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_packing.collate import collate_pack, concatenate_arrays
from streamplug_packing.options import PackingOptions
from streamplug_packing.packer import BestFitPacker

from streamplug.errors import ConfigError, DataError

LENGTH = 30


def bins_of(packer, sizes, first=0):
    """Yield the bins of items, which are numbers, and how many items were added before each."""
    for number in range(first, len(sizes)):
        packer.add(number, sizes[number])
        while (full := packer.complete()) is not None:
            packer.bins.remove(full)
            yield full, number + 1


@given(
    st.lists(st.integers(1, LENGTH), max_size=200),
    st.integers(1, 8),
    st.none() | st.integers(1, 5),
)
def test_each_item_is_in_one_bin_within_the_limits(sizes, open_bins, max_items):
    packer = BestFitPacker(LENGTH, open_bins, max_items)
    done = []
    for full, _ in bins_of(packer, sizes):
        assert len(packer.bins) <= open_bins
        done.append(full)
    every = [*done, *packer.bins]
    assert sorted(item for b in every for item in b.items) == list(range(len(sizes)))
    for b in every:
        assert b.items == sorted(b.items)
        assert sum(sizes[item] for item in b.items) == LENGTH - b.space <= LENGTH
        assert max_items is None or len(b.items) <= max_items
    # Less than 2 * open_bins bins are between a bin's turn and its place.
    assert all(abs(b.number - turn) < 2 * open_bins for turn, b in enumerate(done))


@given(st.lists(st.integers(1, LENGTH), max_size=80), st.integers(1, 5))
def test_an_item_waits_for_at_most_twice_the_open_bins(sizes, open_bins):
    packer, arrivals, done = BestFitPacker(LENGTH, open_bins), [], 0
    for item, size in enumerate(sizes):
        arrivals.append(done)
        packer.add(item, size)
        while (full := packer.complete()) is not None:
            packer.bins.remove(full)
            assert all(done - arrivals[item] <= 2 * open_bins for item in full.items)
            done += 1


@given(st.lists(st.integers(1, LENGTH), max_size=80), st.integers(1, 5), st.data())
def test_a_packer_that_is_restored_goes_on_the_same(sizes, open_bins, data):
    packer = BestFitPacker(LENGTH, open_bins, 6)
    done = [(full.items, added) for full, added in bins_of(packer, sizes)]
    if not done:
        return
    stop = data.draw(st.integers(1, len(done)))
    packer = BestFitPacker(LENGTH, open_bins, 6)
    steps = bins_of(packer, sizes)
    for _ in range(stop):
        _, added = next(steps)
    again = BestFitPacker(LENGTH, open_bins, 6)
    for b in packer.bins:
        again.restore(packer.age(b), list(b.items), LENGTH - b.space)
    found = []
    while (full := again.complete()) is not None:
        again.bins.remove(full)
        found.append((full.items, added))
    found += [(full.items, number) for full, number in bins_of(again, sizes, added)]
    assert found == done[stop:]


@pytest.mark.parametrize("length", [8192, 65536])
def test_little_space_is_left_with_lognormal_sizes(length):
    sizes = np.random.default_rng(5).lognormal(np.log(1000) - 0.5, 1, 20_000)
    packer = BestFitPacker(length, 64)
    spaces = [b.space for b, _ in bins_of(packer, sizes.astype(int).clip(1, length).tolist())]
    assert 1 - np.mean(spaces) / length > 0.997


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"length": 0}, "length=0"),
        ({"length": None}, "length=None"),
        ({"open_bins": 0}, "open_bins=0"),
        ({"max_samples": 0}, "max_samples=0"),
        ({"packs_per_epoch": 0}, "packs_per_epoch=0"),
        ({"size": 3}, "size=3: expected the name of a column, or a function"),
    ],
)
def test_options_are_checked(wrong, error):
    with pytest.raises(ConfigError, match=error):
        PackingOptions(**{"length": 8, "size": len, **wrong})


@pytest.mark.parametrize("size", [0, 9, -1, 2.5, None, "3"])
def test_a_size_that_does_not_fit_is_refused(size):
    with pytest.raises(DataError, match=r"^here has size .* length=8 .* 1 to that: shorten it in"):
        PackingOptions(8, lambda sample: sample).measure(size, lambda: "here")


def test_sizes_of_numpy_and_lengths_of_columns_are_sizes():
    assert PackingOptions(8, lambda sample: sample).measure(np.int16(8), str) == 8
    assert PackingOptions(8, "a").measure({"a": [1, 2]}, str) == 2
    with pytest.raises(DataError, match=r"no length of the column 'b' in dict: KeyError\('b'\)"):
        PackingOptions(8, "b").measure({"a": [1, 2]}, str)


def test_large_integers_of_a_pack_are_exact():
    numbers = [2**63 + 1, 5, np.array([2**53 + 1])]
    joined = concatenate_arrays(numbers)
    assert (joined.dtype, joined.tolist()) == (np.uint64, [2**63 + 1, 5, 2**53 + 1])
    pack = [{"number": 2**63 + 1}, {"number": -5}]
    with pytest.raises(ConfigError, match=r"'number'.*integers below 0"):
        collate_pack(pack, [1, 1], [0, 1], concatenate_arrays)
    assert concatenate_arrays([1, 0.5]).tolist() == [1, 0.5]
