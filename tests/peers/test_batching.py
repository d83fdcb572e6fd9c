"""Whole epochs are those of mosaicml-streaming: every batching method, shuffle, world and resumption."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import Mixture, Planner, Weight, choose_per_stream, proportion_per_stream
from streamplug.plugin import make
from streamplug.run import Run, Wishes
from streamplug.types import World

BATCHINGS = ["random", "stratified", "per_stream", "device_per_stream"]
EXAMPLES = 250
SHUFFLES = [None, "naive", "py1s", "py2s", "py1br", "py1e"]


@dataclass(frozen=True)
class Case:
    """A run, and the world that it is read on."""

    shards: list[list[int]]
    weights: list[dict[str, float]]
    epoch_size: int | None
    seed: int
    epoch: int
    method: str
    granularity: int
    shuffle: str | None
    block: int
    lanes: int
    batch: int
    partition: str
    batching: str
    world: World


def _weights(count):
    def every(each):
        return st.lists(each, min_size=count, max_size=count)

    share = st.builds(lambda part: {"proportion": part}, st.floats(0.05, 1))
    absolute = st.one_of(
        st.just({}),
        st.builds(lambda repeat: {"repeat": repeat}, st.floats(0.1, 2.5)),
        st.builds(lambda choose: {"choose": choose}, st.integers(1, 200)),
    )
    sizes = st.none() | st.integers(1, 300)
    return st.one_of(
        st.tuples(every(share), sizes),
        st.tuples(every(st.just({})), sizes),
        st.tuples(every(st.just({"proportion": 1})), sizes),  # whose remainders are equal
        st.tuples(every(absolute), st.none()),
    )


@st.composite
def cases(draw, batching):
    shards = draw(
        st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=4)
    )
    weights, epoch_size = draw(_weights(len(shards)))
    return Case(
        shards,
        weights,
        epoch_size,
        seed=draw(st.integers(0, 2**31)),
        epoch=draw(st.integers(0, 5)),
        method=draw(st.sampled_from(["balanced", "fixed"])),
        granularity=draw(st.sampled_from([1, 1, 3, 10])),
        shuffle=draw(st.sampled_from(SHUFFLES)),
        block=draw(st.integers(20, 300)),
        lanes=draw(st.sampled_from([1, 2, 3, 4, 6, 8])),
        batch=draw(st.integers(1, 5)),
        partition=draw(st.sampled_from(["orig", "relaxed"])),
        batching=batching,
        world=World(*draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)))),
    )


def their_work(mosaic, mosaic_plan, case, sample_in_epoch=0, first_nodes=None):
    """Return their array of ids, or None if they refuse."""
    there = case.world
    world = mosaic.base.world.World(
        there.nodes, there.ranks_per_node, there.workers_per_rank, worker=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that are small or empty
        plan = mosaic_plan(
            case.shards,
            case.weights,
            epoch_size=case.epoch_size,
            seed=case.seed,
            sampling_method=case.method,
            sampling_granularity=case.granularity,
            num_canonical_nodes=case.lanes,
            batch_size=case.batch,
            partition_algo=case.partition,
            initial_physical_nodes=first_nodes,
            shuffle=case.shuffle is not None,
            shuffle_algo=case.shuffle,
            shuffle_block_size=case.block,
            epoch_seed_change=case.shuffle is not None and case.method == "balanced",
        )
        try:
            return mosaic.base.batching.generate_work(
                case.batching, plan, world, case.epoch, sample_in_epoch
            )
        except ValueError:
            return None


def our_run(case):
    sizes = [sum(stream) for stream in case.shards]
    weights = [Weight(**weight) for weight in case.weights]
    choose = choose_per_stream(sizes, weights, case.epoch_size, case.seed)
    shares = proportion_per_stream(sizes, weights, case.epoch_size, choose)
    flat = [size for stream in case.shards for size in stream]
    planner = Planner(
        np.cumsum([0, *flat], dtype=np.int64),
        np.cumsum([0, *map(len, case.shards)]).tolist(),
        Mixture(tuple(choose), case.method, case.granularity, exact=True, shares=tuple(shares)),
        make("shuffle", case.shuffle or "none"),
        shuffled=case.shuffle is not None,
    )
    wishes = Wishes(
        shuffle_algo=case.shuffle,
        shuffle_seed=case.seed,
        shuffle_block_size=case.block,
        num_canonical_nodes=case.lanes,
        partition_algo=case.partition,
        batching_method=case.batching,
    )
    return Run(planner, "", case.batch, wishes)


def our_work(case, sample_in_epoch=0, first_nodes=None):
    """Return the ids of an epoch in the shape of theirs, or None if we refuse."""
    run, world = our_run(case), case.world
    if first_nodes:
        saved = {
            "epoch": case.epoch,
            "sample_in_epoch": sample_in_epoch,
            "num_canonical_nodes": case.lanes,
            "shuffle_seed": case.seed,
            "initial_physical_nodes": first_nodes,
        }
        run.load(saved, world)
    try:
        epoch = run.epoch(case.epoch, world)
    except ConfigError:
        return None
    steps = np.arange(sample_in_epoch // (case.batch * world.ranks), epoch.steps)
    workers = world.workers_per_rank
    numbers = -(-len(steps) // workers)
    shape = (world.nodes, world.ranks_per_node, workers, numbers, case.batch)
    whole = np.full(shape, -1, np.int64)
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, workers, rank)
        for number, row in enumerate(epoch.ids(place, case.batch, steps)):
            whole[place.node, place.rank_of_node, number % workers, number // workers] = row
    return whole


def same(ours, theirs):
    """Tell whether two epochs are one; theirs may end with batches of nothing."""
    numbers = ours.shape[3]
    return (
        ours.shape[:3] == theirs.shape[:3]
        and numbers <= theirs.shape[3]
        and (ours == theirs[..., :numbers, :]).all()
        and (theirs[..., numbers:, :] == -1).all()
    )


def compare(mosaic, mosaic_plan, case, *resumed):
    theirs = their_work(mosaic, mosaic_plan, case, *resumed)
    ours = our_work(case, *resumed)
    event(f"{case.batching}: {'refused' if theirs is None else 'served'}")
    if ours is None:
        # Of a set without a single whole batch they make an epoch of nothing.
        assert theirs is None or not theirs.size
        return
    assume(theirs is not None)  # we may serve what it refuses
    assert same(ours, theirs)


@pytest.mark.parametrize("batching", BATCHINGS)
def test_epochs(mosaic, mosaic_plan, batching):
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(cases(batching))
    def test(case):
        compare(mosaic, mosaic_plan, case)

    test()


@pytest.mark.parametrize("batching", BATCHINGS)
def test_resumed_epochs(mosaic, mosaic_plan, batching):
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(cases(batching), st.floats(0, 1), st.integers(1, 4))
    def test(case, part, first_nodes):
        total = case.batch * case.world.ranks
        size = sum(our_run(case).identity(case.world).choose or [])
        step = int(part * (size // total))
        if batching == "random":
            assume(not _repeats_others(size - step * total, case.world, first_nodes))
        compare(mosaic, mosaic_plan, case, step * total, first_nodes)

    test()


def _repeats_others(left, world, first_nodes):
    """Tell whether so few samples are left that theirs, resumed, may repeat others at the end.

    Ranks that would get one sample less repeat an earlier one. Theirs look for it among those that are
    left, but when the epoch was not interrupted, among all; ours among all.
    """
    return left < 3 * world.ranks_per_node * max(world.nodes, first_nodes)


def test_resumed_just_before_the_end_theirs_repeat_other_samples(mosaic, mosaic_plan):
    case = Case(
        [[9]], [{}], None, 1, 0, "balanced", 1, None, 9, 1, 2, "orig", "random", World(1, 4)
    )
    whole = their_work(mosaic, mosaic_plan, case)
    resumed = their_work(mosaic, mosaic_plan, case, 8)
    assert whole[0, :, 0, 1, 0].tolist() == [8, 3, 4, 5]
    assert resumed[0, :, 0, 0, 0].tolist() == [8, 8, 8, 8]
    assert our_work(case, 8, 1)[0, :, 0, 0, 0].tolist() == [8, 3, 4, 5]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_an_epoch_of_nothing_is_refused(mosaic, mosaic_plan, batching):
    case = Case(
        [[3]],
        [{"repeat": 0.1}],
        None,
        1,
        0,
        "balanced",
        1,
        "py1s",
        9,
        1,
        2,
        "orig",
        batching,
        World(),
    )
    assert their_work(mosaic, mosaic_plan, case) is None
    assert our_work(case) is None
