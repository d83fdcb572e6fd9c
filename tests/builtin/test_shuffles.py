from __future__ import annotations

import hashlib
import json
import pickle
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_testing.memory import takes_less

from streamplug.builtin.shuffles import bijection, window
from streamplug.builtin.shuffles.window import generator
from streamplug.errors import ConfigError
from streamplug.interfaces import Permutation
from streamplug.interfaces.shuffle import ArrayOrder, canonical_node_bounds
from streamplug.plugin import make

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "shuffles.json").read_text())

algorithms = st.sampled_from(["none", "window", "global"])
shards = st.lists(st.integers(0, 60), min_size=1, max_size=12)
canonical_nodes_of = st.integers(1, 7)
blocks = st.sampled_from([1, 2, 3, 7, 16, 64, 1000, 1 << 40])
seeds = st.integers(0, 1 << 70)
epochs = st.integers(0, 1 << 40)


def order(
    name: str,
    sizes: list[int],
    canonical_nodes: int = 1,
    seed: int = 9176,
    epoch: int = 0,
    block: int = 16,
) -> Permutation:
    return make("shuffle", name).order(
        np.cumsum([0, *sizes], dtype=np.int64),
        canonical_nodes=canonical_nodes,
        seed=seed,
        epoch=epoch,
        block_size=block,
    )


def canonical_nodes_in(it: Permutation, total: int, canonical_nodes: int) -> list[list[int]]:
    lengths = np.diff(canonical_node_bounds(total, canonical_nodes)).tolist()
    return [
        it.take(canonical_node, 0, length).tolist() for canonical_node, length in enumerate(lengths)
    ]


def digest(it: Permutation, total: int, canonical_nodes: int) -> str:
    ids = np.concatenate(
        [
            np.array(canonical_node, np.int64)
            for canonical_node in canonical_nodes_in(it, total, canonical_nodes)
        ]
    )
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()


@settings(deadline=None)
@given(algorithms, shards, canonical_nodes_of, seeds, epochs, blocks)
def test_every_order_has_each_id_once(name, sizes, canonical_nodes, seed, epoch, block):
    total = sum(sizes)
    found = canonical_nodes_in(
        order(name, sizes, canonical_nodes, seed, epoch, block), total, canonical_nodes
    )
    assert sorted(i for canonical_node in found for i in canonical_node) == list(range(total))


@settings(deadline=None)
@given(algorithms, shards, canonical_nodes_of, seeds, blocks, st.data())
def test_single_positions_are_those_of_the_whole(name, sizes, canonical_nodes, seed, block, data):
    it = order(name, sizes, canonical_nodes, seed, 3, block)
    whole = canonical_nodes_in(
        order(name, sizes, canonical_nodes, seed, 3, block), sum(sizes), canonical_nodes
    )
    canonical_node = data.draw(
        st.sampled_from([c for c in range(canonical_nodes) if whole[c]] or [0])
    )
    length = len(whole[canonical_node])
    if length:
        asked = data.draw(st.lists(st.integers(0, length - 1), max_size=20))
        found = it.at(canonical_node, np.array(asked, np.int64))
        assert found.tolist() == [whole[canonical_node][position] for position in asked]
        assert found.dtype == np.int64
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    assert it.take(canonical_node, start, stop).tolist() == whole[canonical_node][start:stop]


@settings(deadline=None)
@given(shards, canonical_nodes_of, seeds, blocks, epochs, epochs)
def test_a_canonical_node_of_window_keeps_its_samples_across_epochs(
    sizes, canonical_nodes, seed, block, one, other
):
    first = canonical_nodes_in(
        order("window", sizes, canonical_nodes, seed, one, block), sum(sizes), canonical_nodes
    )
    second = canonical_nodes_in(
        order("window", sizes, canonical_nodes, seed, other, block), sum(sizes), canonical_nodes
    )
    assert [sorted(canonical_node) for canonical_node in first] == [
        sorted(canonical_node) for canonical_node in second
    ]


def test_canonical_nodes_of_window_share_few_shards():
    sizes = [50] * 40
    owner = np.repeat(np.arange(40), 50)
    found = canonical_nodes_in(order("window", sizes, 4, block=100), 2000, 4)
    per_canonical_node = [set(owner[canonical_node].tolist()) for canonical_node in found]
    assert sum(len(part) for part in per_canonical_node) <= 40 + 3


@settings(deadline=None)
@given(shards, canonical_nodes_of, seeds, epochs, st.sampled_from([1, 2, 3, 7, 16, 64]))
def test_window_moves_a_sample_less_than_two_blocks(sizes, canonical_nodes, seed, epoch, block):
    total = sum(sizes)
    mixed = canonical_nodes_in(
        order("window", sizes, canonical_nodes, seed, epoch, block), total, canonical_nodes
    )
    plain = canonical_nodes_in(
        order("window", sizes, canonical_nodes, seed, epoch, 1), total, canonical_nodes
    )
    for canonical_node, stored in zip(mixed, plain):
        place = {i: position for position, i in enumerate(stored)}
        assert all(
            abs(place[i] - position) < 2 * block for position, i in enumerate(canonical_node)
        )


def test_window_mixes_over_a_block_without_edges():
    plain = np.arange(100_000)
    mixed = order("window", [100_000], block=1000).take(0, 0, 100_000)
    moved = np.abs(mixed - plain)
    assert 300 < moved.mean() < 1000
    # Some sample crosses each multiple of half a block: none is an edge.
    farthest = np.maximum.accumulate(mixed)
    edges = np.arange(500, 100_000, 500)
    assert (farthest[edges - 1] >= edges).all()


def test_positions_beyond_32_bits_are_mixed_too():
    it = order("window", [1 << 31, 1 << 33], block=1 << 16)
    end = (1 << 31) + (1 << 33)
    for start in ((1 << 31) - 1000, (1 << 32) + 12345, end - 2000):
        found = it.take(0, start, start + 2000)
        assert len(set(found.tolist())) == 2000
        assert 0 <= found.min() <= found.max() < end


def test_global_moves_samples_anywhere():
    total = 100_000
    moved = np.abs(order("global", [1000] * 100).take(0, 0, total) - np.arange(total))
    assert 30_000 < moved.mean() < 37_000  # a third of the whole for a random permutation


@pytest.mark.parametrize("name", ["window", "global"])
def test_large_seeds_differ_too(name):
    seeds = [(1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1]
    assert len({digest(order(name, [1000], 1, seed), 1000, 1) for seed in seeds}) == 5


@pytest.mark.parametrize("name", ["window", "global"])
def test_epochs_and_seeds_differ(name):
    seen = {
        digest(order(name, [100] * 10, 2, seed, epoch), 1000, 2)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(seen) == 9


def test_stored_order_is_the_same_in_all_epochs_and_seeds():
    assert canonical_nodes_in(order("none", [3, 0, 4], 2, 5, 9), 7, 2) == [[0, 1, 2], [3, 4, 5, 6]]


@given(algorithms, shards, canonical_nodes_of, seeds, epochs, blocks)
def test_instances_agree(name, sizes, canonical_nodes, seed, epoch, block):
    arguments = (name, sizes, canonical_nodes, seed, epoch, block)
    one, other = order(*arguments), order(*arguments)
    assert digest(one, sum(sizes), canonical_nodes) == digest(other, sum(sizes), canonical_nodes)


@pytest.mark.parametrize("name", ["none", "window", "global"])
def test_an_algorithm_that_was_pickled_gives_the_same_order(name):
    copy = pickle.loads(pickle.dumps(make("shuffle", name)))
    it = copy.order(np.array([0, 50, 100]), canonical_nodes=2, seed=1, epoch=2, block_size=10)
    assert digest(it, 100, 2) == digest(order(name, [50, 50], 2, 1, 2, 10), 100, 2)


@pytest.mark.parametrize(
    "case", GOLDEN, ids=lambda case: f"{case['algo']}-{case['seed']}-{case['epoch']}"
)
def test_orders_are_those_of_earlier_releases(case):
    it = order(
        case["algo"],
        case["sizes"],
        case["canonical_nodes"],
        case["seed"],
        case["epoch"],
        case["block"],
    )
    assert digest(it, sum(case["sizes"]), case["canonical_nodes"]) == case["sha256"]


def test_a_window_order_does_not_travel():
    with pytest.raises(TypeError, match=r"an order is made where it is used"):
        pickle.dumps(order("window", [10]))


@pytest.mark.parametrize("name", ["none", "window", "global"])
def test_shuffles_take_no_argument(name):
    with pytest.raises(ConfigError, match=r"takes no argument, got '5'"):
        make("shuffle", f"{name}:5")


def test_defaults_depend_on_nodes_only():
    for name in ("window", "global"):
        assert make("shuffle", name).default_canonical_nodes(3) == 3
        assert make("shuffle", name).default_block_size(100) == 1 << 18
    assert make("shuffle", "window").default_block_size(1) == 1 << 18
    assert make("shuffle", "global").default_block_size(1) == 4_000_000


def test_an_eager_order_holds_its_ids():
    it = ArrayOrder(np.array([4, 2, 0, 1, 3]), 2)
    assert it.take(0, 0, 2).tolist() == [4, 2]
    assert it.at(1, np.array([2, 0])).tolist() == [3, 0]


@settings(deadline=None)
@given(algorithms, shards.filter(any), canonical_nodes_of, seeds, blocks, st.data())
def test_finds_where_an_id_comes(name, sizes, canonical_nodes, seed, block, data):
    it = order(name, sizes, canonical_nodes, seed, 3, block)
    wanted = data.draw(st.integers(0, sum(sizes) - 1))
    canonical_node, position = it.find(wanted)
    assert it.take(canonical_node, position, position + 1).tolist() == [wanted]


@given(st.integers(1, 9), shards.filter(any), canonical_nodes_of, blocks)
def test_shards_in_groups_are_shuffled_as_well(limit, sizes, canonical_nodes, block):
    with mock.patch.object(window, "MAX_GROUPS", limit):
        again = canonical_nodes_in(
            order("window", sizes, canonical_nodes, 5, 4, block), sum(sizes), canonical_nodes
        )
        it = order("window", sizes, canonical_nodes, 5, 3, block)
        found = canonical_nodes_in(it, sum(sizes), canonical_nodes)
    for canonical_node, ids in enumerate(found):
        for position, wanted in list(enumerate(ids))[::7]:
            assert it.find(wanted) == (canonical_node, position)
    assert sorted(i for canonical_node in found for i in canonical_node) == list(range(sum(sizes)))
    assert [set(canonical_node) for canonical_node in found] == [
        set(canonical_node) for canonical_node in again
    ]


@pytest.mark.parametrize("canonical_nodes", [1, 5, 64])
@pytest.mark.parametrize("every", [1, 8])
def test_reading_window_canonical_nodes_side_by_side_shuffles_each_block_once(
    canonical_nodes, every
):
    size, block = 1000, 64  # of a canonical node
    drawn = Counter()

    def counted(seed, epoch, use, canonical_node, block):
        drawn[use, canonical_node, block] += 1
        return generator(seed, epoch, use, canonical_node, block)

    with mock.patch.object(window, "generator", counted):
        it = order("window", [100] * (canonical_nodes * size // 100), canonical_nodes, block=block)
        for start in range(0, size, 40):  # at times across the bound of two blocks
            for canonical_node in range(canonical_nodes):
                it.at(canonical_node, np.arange(start, start + 40, every))
    mixed = {key: times for key, times in drawn.items() if key[0] in (window.FIRST, window.SECOND)}
    assert set(mixed.values()) == {1}
    blocks = len(range(0, size, block)) + len(range(-block // 2, size, block))
    assert len(mixed) == canonical_nodes * blocks


@pytest.mark.parametrize("total", [1, 2, 1000, 10**6])
def test_looking_rounds_up_gives_what_working_them_out_gives(total):
    positions = np.random.default_rng(0).integers(0, total, 100)
    looked_up = bijection.Bijection(total, 5, 6)
    with mock.patch.object(bijection, "_TABLE_BITS", 0):
        worked_out = bijection.Bijection(total, 5, 6)
    ids = looked_up(positions)
    assert ids.tolist() == worked_out(positions).tolist()
    for it in (looked_up, worked_out):
        assert [it.inverse(i) for i in ids[:10].tolist()] == positions[:10].tolist()


def test_threads_may_read_one_window_order():
    it, other = (order("window", [1000] * 20, block=500) for _ in range(2))
    expected = other.take(0, 0, 20_000)

    def read(start):
        return [it.take(0, k, k + 50) for k in range(start, 20_000, 1000)]

    with ThreadPoolExecutor(4) as pool:
        for start, parts in zip(range(0, 1000, 50), pool.map(read, range(0, 1000, 50))):
            for k, part in zip(range(start, 20_000, 1000), parts):
                assert part.tolist() == expected[k : k + 50].tolist()


def test_reading_far_into_a_window_canonical_node_keeps_a_block_and_a_half():
    it = order("window", [1000] * 500, block=10_000)
    it.take(0, 0, 1)
    tracemalloc.start()
    try:
        for start in range(0, 500_000, 1000):
            it.take(0, start, start + 1000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000 * 4 * 2


def test_a_trillion_samples_in_many_shards_start_at_once():
    starts = np.arange(10**6 + 1, dtype=np.int64) * 10**6

    def begin():
        it = make("shuffle", "window").order(
            starts, canonical_nodes=8, seed=1, epoch=2, block_size=1 << 18
        )
        ids = it.take(4, 5 * 10**10, 5 * 10**10 + 1024)
        assert len(set(ids.tolist())) == 1024

    assert takes_less(30 << 20, begin)
