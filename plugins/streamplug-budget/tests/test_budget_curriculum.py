"""Proportions of batches of limited cost change at given global batches, in every world, from any step."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_budget import BatchBudget
from streamplug_budget.planner import BudgetPlanner
from streamplug_budget.sample_lengths import (
    SampleLengths,
    StreamLengths,
    pack_lengths,
    summarize_lengths,
)
from streamplug_budget.windows import CostModel
from streamplug_mixing import Curriculum

from streamplug import MDSWriter, Stream, StreamingDataset, World
from streamplug.errors import ConfigError, StateError
from streamplug.plan import Position, Segment, Streams, rows_of
from streamplug.plan.state import unpack
from streamplug.plugin import make

WORLDS = [World(nodes, ranks) for nodes in (1, 2, 4, 8) for ranks in (1, 2, 3, 8)]
GLOBAL_BATCHES = (1, 6, 8, 24, 64)


def model_of(streams, budget, max_samples):
    parts = []
    for stream in streams:
        lengths = np.array(stream, np.uint32)
        total, longest, digest = summarize_lengths(lengths).tolist()
        packed = pack_lengths(lengths)
        parts.append(StreamLengths(packed, len(lengths), total, longest, hex(digest)))
    return CostModel(SampleLengths(parts), budget, max_samples)


def rows(plan, world, steps=None):
    """Return the samples of each batch of a rank."""
    steps = np.arange(plan.steps(world)) if steps is None else np.array(steps)
    return [row.tolist() for row in rows_of(*plan.ids(world, steps))]


class Run:
    """A run over some streams with a curriculum."""

    def __init__(
        self, streams, curriculum, epoch_size, global_batch, canonical_nodes=1, shuffle="window",
        max_samples=None, **budget
    ):  # fmt: skip
        sizes = [len(stream) for stream in streams]
        self.global_batch, self.firsts = global_batch, [0, *accumulate(sizes)]
        self.budget = BatchBudget(**{"limit": 60, "column": "tokens", **budget})
        self.lengths = np.concatenate(streams)
        streams_of_run = Streams(
            np.array(self.firsts, np.int64),
            list(range(len(sizes) + 1)),
            Curriculum.parse(curriculum, sizes, epoch_size),
            make("shuffle", shuffle),
            shuffled=shuffle != "none",
            seed=7,
            shuffle_block_size=100,
        )
        self.planner = BudgetPlanner(
            streams_of_run, model_of(streams, self.budget, max_samples), None
        )
        self.segments = [Segment(Position(), World(), global_batch, canonical_nodes)]

    def plan(self, epoch):
        return self.planner.epoch(epoch, self.segments)

    def batches(self, epoch, world=None):
        """Return the batches of each global batch of an epoch."""
        world = world or World()
        plan = self.plan(epoch)
        tables = [rows(plan, replace(world, rank=rank)) for rank in range(world.ranks)]
        per_rank = self.global_batch // world.ranks
        return [
            sorted(sorted(row) for table in tables for row in table[first : first + per_rank])
            for first in range(0, plan.steps(world), per_rank)
        ]

    def position_of(self, step):
        return self.planner.position_of(step, self.segments)

    def stream_of(self, sample):
        return int(np.searchsorted(self.firsts, sample, side="right")) - 1


@st.composite
def runs(draw, **options):
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    sizes = draw(st.lists(st.integers(1, 400), min_size=1, max_size=3))
    shares = st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)).filter(any)
    steps = draw(st.sets(st.integers(1, 30), max_size=3))
    chosen = {
        "streams": [np.clip(rng.lognormal(2, 1, size), 1, 60).astype(int) for size in sizes],
        "curriculum": {step: draw(shares) for step in sorted({0, *steps})},
        "epoch_size": draw(st.integers(1, 3 * sum(sizes))),
        "global_batch": draw(st.sampled_from(GLOBAL_BATCHES)),
        "canonical_nodes": draw(st.sampled_from([1, 2, 3, 8])),
        "shuffle": draw(st.sampled_from(["window", "global", "none"])),
        "pad_to": draw(st.sampled_from(["none", "batch"])),
        "quadratic": draw(st.sampled_from([0.0, 0.02])),
        "limit": draw(st.sampled_from([140, 900])),
        "max_samples": draw(st.none() | st.integers(1, 40)),
    }
    return {**chosen, **options}


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    """Let a run of few samples have several windows and sequences."""
    monkeypatch.setattr("streamplug_budget.windows._MIN_WINDOW", 64)
    monkeypatch.setattr("streamplug_budget.windows._BINS_PER_WINDOW", 16)
    monkeypatch.setattr("streamplug_budget.windows._MIN_BINS_PER_SEQUENCE", 8)


@settings(max_examples=25)
@given(runs(), st.integers(0, 3))
def test_global_batches_are_the_same_in_every_world_and_process(options, epoch):
    run = Run(**options)
    expected = run.batches(epoch)
    for world in WORLDS:
        if run.global_batch % world.ranks == 0:
            assert run.batches(epoch, world) == expected
    again = Run(**options)
    again.planner = pickle.loads(pickle.dumps(run.planner))
    assert again.batches(epoch) == expected
    assert again.batches(0) == Run(**options).batches(0)
    before = sum(len(again.batches(number)) for number in range(epoch))
    assert again.position_of(before) == Position(epoch)
    last = len(expected) - 1
    assert again.position_of(before + last) == Position(epoch, last * run.global_batch)
    assert again.position_of(before + last + 1) == Position(epoch + 1)
    samples = sum(len(batch) for step in expected for batch in step)
    if samples != options["epoch_size"]:  # too few samples for the batches of the last part
        assert samples > options["epoch_size"]
    for batch in (batch for step in expected for batch in step):
        costs = run.budget.costs(run.lengths[batch])
        cost = costs.sum() if run.budget.pad_to == "none" else len(batch) * costs.max()
        assert 0 < cost <= run.budget.largest_cost
        assert options["max_samples"] is None or len(batch) <= options["max_samples"]


@settings(max_examples=25)
@given(runs(), st.integers(0, 2), st.data())
def test_where_is_the_inverse_of_ids_and_any_steps_can_be_asked_for(options, epoch, data):
    run = Run(**options)
    worlds = [world for world in WORLDS if run.global_batch % world.ranks == 0]
    world, found = data.draw(st.sampled_from(worlds)), {}
    plan = run.plan(epoch)
    for rank in range(world.ranks):
        for step, row in enumerate(rows(plan, replace(world, rank=rank))):
            for position, sample in enumerate(row):
                found.setdefault(sample, []).append((step, rank, position))
    for sample in data.draw(st.lists(st.integers(0, run.firsts[-1] - 1), max_size=5)):
        places = [(p.step, p.rank, p.position) for p in plan.where(world, sample)]
        assert sorted(places) == sorted(found.get(sample, []))
    step = data.draw(st.integers(0, plan.steps(world) - 1))
    assert rows(Run(**options).plan(epoch), world, [step]) == [rows(plan, world)[step]]


@settings(max_examples=15)
@given(runs(), st.integers(1, 20), st.data())
def test_what_is_read_before_a_change_does_not_depend_on_it(options, step, data):
    before, curriculum = Run(**options), options["curriculum"]
    other = {begin: shares for begin, shares in curriculum.items() if begin < step}
    shares = st.lists(
        st.integers(0, 3), min_size=len(before.firsts) - 1, max_size=len(before.firsts) - 1
    )
    after = Run(**{**options, "curriculum": {**other, step: data.draw(shares.filter(any))}})
    left, epoch = step, 0
    while left > 0:
        batches = before.batches(epoch)
        assert after.batches(epoch)[:left] == batches[:left]
        left, epoch = left - len(batches), epoch + 1


@settings(max_examples=6)
@given(runs(max_samples=None, epoch_size=900), st.integers(2, 20), st.integers(2, 20))
def test_shares_change_at_their_step_and_passes_stay_whole(options, first, second):
    rng = np.random.default_rng(3)
    options["streams"] = [rng.integers(1, 40, size) for size in (300, 70, 500)]
    options["global_batch"] = min(options["global_batch"], 8)
    options["curriculum"] = {0: [3, 1, 0], first: [0, 1, 1], first + second: [2, 1, 1]}
    run, steps, epochs = Run(**options), [], 0
    while len(steps) < first + second + 10 or epochs < 3:
        epoch = run.batches(epochs)
        assert sum(len(batch) for step in epoch for batch in step) == 900
        steps += epoch
        epochs += 1
    streams = [{run.stream_of(sample) for batch in step for sample in batch} for step in steps]
    assert all(step <= {0, 1} for step in streams[:first])
    assert all(step <= {1, 2} for step in streams[first : first + second])
    read = Counter(sample for step in steps for batch in step for sample in batch)
    for start, end in zip(run.firsts, run.firsts[1:]):
        times = [read[sample] for sample in range(start, end)]
        # Sequences may be in different passes, and samples of one stream may still be left from a change.
        assert max(times) - min(times) <= 2
    one = Run(**{**options, "canonical_nodes": 1})
    read = Counter()
    for epoch in range(epochs + 3):
        read.update(sample for step in one.batches(epoch) for batch in step for sample in batch)
    if one.position_of(first + second) < Position(
        epochs + 1
    ):  # all that was left has been read since
        for start, end in zip(one.firsts, one.firsts[1:]):
            times = [read[sample] for sample in range(start, end)]
            assert max(times) - min(times) <= 1


@pytest.mark.parametrize("pad_to", ["none", "batch"])
def test_global_batches_have_the_streams_by_their_shares(pad_to):
    rng = np.random.default_rng(0)
    streams = [rng.integers(1, 60, 9000), rng.integers(1, 60, 9000)]
    run = Run(streams, {0: [9, 1], 25: [1, 1]}, 6000, 16, 4, limit=600, pad_to=pad_to)
    steps = (run.batches(0) + run.batches(1) + run.batches(2))[:60]
    shares = [
        np.mean([run.stream_of(sample) for batch in step for sample in batch]) for step in steps
    ]
    assert len(shares) == 60
    bound = 4 * np.sqrt(0.25 / 300)  # as of samples drawn at random
    assert all(abs(share - 0.1) < bound for share in shares[:25])
    assert all(abs(share - 0.5) < bound for share in shares[25:])
    assert abs(np.mean(shares[:25]) - 0.1) < 0.01
    assert abs(np.mean(shares[25:]) - 0.5) < 0.02


def test_nodes_read_their_own_canonical_nodes():
    rng = np.random.default_rng(0)
    streams = [rng.integers(1, 50, 20_000) for _ in range(2)]
    run = Run(streams, {0: [1, 3], 60: [1, 1]}, 20_000, 8, 4, limit=500, shuffle="none")
    world, read = World(4, 2), []
    plan = run.plan(0)
    steps = plan.steps(world)
    assert steps > 120
    for node in range(4):
        ids, _ = plan.ids(replace(world, rank=2 * node), np.arange(steps - 10))
        read.append({sample // 5000 for sample in ids.tolist()})
    assert read == [{node, 4 + node} for node in range(4)]


# -- data sets --------------------------------------------------------------------------

CHANGES = {0: [1, 1, 0], 4: [0, 1, 1], 7: [1, 1, 1]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top, rng = tmp_path_factory.mktemp("streams"), np.random.default_rng(2)
    for stream, size in enumerate((200, 80, 300)):
        columns = {"id": "int", "tokens": "ndarray:uint16"}
        with MDSWriter(out=top / str(stream), columns=columns, size_limit=5000) as out:
            for n in range(size):
                length = int(np.clip(rng.lognormal(3, 1), 1, 200))
                out.write({"id": 1000 * stream + n, "tokens": np.zeros(length, np.uint16)})
    return [str(top / str(stream)) for stream in range(3)]


def open_dataset(folders, world=None, **options):
    budget = {"limit": 300, "column": "tokens", "micro_batches": 8}
    defaults = {"curriculum": CHANGES, "epoch_size": 400, "num_canonical_nodes": 4, "shuffle": True}
    return StreamingDataset(
        streams=[Stream(local=folder) for folder in folders],
        batching_method="budget",
        batch_budget=budget,
        world=world or World(),
        **{**defaults, **options},
    )


def read(dataset):
    return [batch["id"].tolist() for batch in dataset.batches()]


def take(dataset, count):
    batches = dataset.batches()
    return [next(batches)["id"].tolist() for _ in range(count)]


def streams_of(batches):
    return {n // 1000 for batch in batches for n in batch}


@given(st.integers(0, 100), st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=4)
def test_a_run_is_resumed_at_any_step_on_other_ranks(folders, position, ranks):
    dataset = open_dataset(folders)
    whole = read(dataset) + read(dataset)
    dataset, done = open_dataset(folders), 8 * (position % (len(whole) // 8))
    first = dataset.session.run.steps(World())
    if done >= first:
        read(dataset)
    take(dataset, done % first if done < first else done - first)
    state = json.loads(json.dumps(dataset.state_dict()))
    changes = unpack(state)["segments"]
    assert len(changes) == sum(8 * step <= done for step in CHANGES)
    parts = []
    for rank in range(ranks):
        dataset = open_dataset(folders, World(1, ranks, rank=rank))
        dataset.load_state_dict(state)
        parts.append(read(dataset) + (read(dataset) if done < first else []))
    rest = [batch for step in zip(*parts) for batch in step]
    for start in range(done, len(whole), 8):
        found = rest[start - done : start - done + 8]
        assert sorted(map(sorted, found)) == sorted(map(sorted, whole[start : start + 8]))


def test_proportions_are_set_and_planned_anew_between_global_batches(folders):
    begun = open_dataset(folders, curriculum={0: [1, 1, 0]})
    done = take(begun, 24)
    state = json.loads(json.dumps(begun.state_dict()))
    begun.load_state_dict(state)
    begun.set_proportions([0, 1, 1])
    by_hand = begun.state_dict()
    change = {"epoch": 0, "done": 24, "proportions": [0.0, 1.0, 1.0]}
    assert unpack(by_hand)["segments"][1] == change
    rest = read(begun)
    assert streams_of(rest) == {1, 2}
    assert sum(map(len, done + rest)) == 400
    assert max(Counter(n for batch in done + rest for n in batch if n // 1000 == 2).values()) == 1
    again = open_dataset(folders, curriculum={0: [1, 1, 0]})
    again.load_state_dict(json.loads(json.dumps(by_hand)))
    assert read(again) == rest
    other = open_dataset(folders, curriculum={0: [1, 1, 0], 5: [0, 1, 0]})
    other.load_state_dict(state)
    rest = read(other)
    assert (streams_of(rest[:16]), streams_of(rest[16:])) == ({0, 1}, {1})
    assert sum(map(len, done + rest)) == 400


def test_changes_that_do_not_fit_are_refused(folders):
    begun = open_dataset(folders, World(1, 4))
    take(begun, 1)
    state = begun.state_dict()
    begun.load_state_dict(state)
    with pytest.raises(
        ConfigError, match="after 4 batches of an epoch, in the middle of a global batch of 8"
    ):
        begun.set_proportions([1, 0, 0])
    streams = [Stream(local=folder, proportion=1) for folder in folders]
    mixed = StreamingDataset(
        streams=streams,
        batching_method="budget",
        batch_budget={"limit": 300, "column": "tokens"},
    )
    with pytest.raises(ConfigError, match=r"begin the run with a curriculum=, such as \{0: "):
        mixed.set_proportions([1, 0, 0])
    for changes in ({0: [1, 0, 0]}, {**CHANGES, 0: [1, 2, 0]}):
        with pytest.raises(StateError, match="curriculum up to "):
            open_dataset(folders, World(1, 4), curriculum=changes).load_state_dict(state)
    with pytest.raises(StateError, match="choose"):
        mixed.load_state_dict(state)


def test_a_change_at_any_epoch_is_found_without_the_epochs_before_it(folders):
    dataset = open_dataset(folders, curriculum={0: [1, 1, 1]})
    far = {**dataset.state_dict(), "epoch": 10**9}
    dataset.load_state_dict(far)
    batches = dataset.batches()
    before = [next(batches)["id"].tolist() for _ in range(16)]
    dataset.set_proportions([1, 0, 0])
    state = json.loads(json.dumps(dataset.state_dict()))
    rest = [batch["id"].tolist() for batch in batches] + read(dataset)
    assert (streams_of(before), streams_of(rest)) == ({0, 1, 2}, {0})
    resumed = open_dataset(folders, curriculum={0: [1, 1, 1]})
    resumed.load_state_dict(state)
    assert resumed.session.run.next() == Position(10**9, 16)
    assert read(resumed) + read(resumed) == rest


def test_a_change_at_the_end_of_an_epoch_takes_the_place_of_a_planned_one(folders):
    length = len(read(open_dataset(folders, curriculum={0: [1, 1, 0]})))
    curriculum = {0: [1, 1, 0], length // 8: [0, 1, 0]}
    expected = open_dataset(folders, curriculum={0: [1, 1, 0], length // 8: [0, 0, 1]})
    read(expected)
    epochs = [read(expected) for _ in range(2)]
    dataset = open_dataset(folders, curriculum=curriculum)
    batches = dataset.batches()
    for _ in range(length):
        next(batches)
    dataset.set_proportions([0, 0, 1])
    states = [dataset.state_dict()]
    assert next(batches, None) is None
    states.append(dataset.state_dict())
    assert read(dataset) == epochs[0]
    states.append(dataset.state_dict())
    assert read(dataset) == epochs[1]
    for state, rest in zip(states, [[[], *epochs], epochs, epochs[1:]]):
        resumed = open_dataset(folders, curriculum=curriculum)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert [read(resumed) for _ in rest] == rest


STATES = json.loads(Path(__file__).with_name("states_version_1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STATES)
def test_states_of_version_1_are_resumed(folders, name):
    dataset, changes = open_dataset(folders), []
    if name == "planned":
        read(dataset)
        take(dataset, 16)
    else:
        batches = dataset.batches()
        for _ in range(24):
            next(batches)
        dataset.set_proportions([0, 0, 1])
        changes.append(Position(0, 24))
    if name in ("after 44", "next epoch"):
        for _ in range(20):
            next(batches)
    if name == "next epoch":
        assert len(list(batches)) == 4
        take(dataset, 8)
        dataset.set_proportions([3, 1, 0])
        batches = dataset.batches()
        for _ in range(8):
            next(batches)
        changes.append(Position(2))
    resumed = open_dataset(folders)
    resumed.load_state_dict(STATES[name])
    assert resumed.state_dict() == dataset.state_dict()
    segments = unpack(resumed.state_dict())["segments"]
    by_hand = [Position(s["epoch"], s["done"]) for s in segments if "planned" not in s]
    assert by_hand == changes
    dataset.load_state_dict(dataset.state_dict())
    assert [read(resumed) for _ in range(3)] == [read(dataset) for _ in range(3)]


def test_an_incomplete_state_of_version_1_is_refused(folders):
    state = STATES["planned"]
    with pytest.raises(StateError, match="not loaded whole"):
        open_dataset(folders).load_state_dict({**state, "curriculum": None})
    far = {"step": 10**9, "proportions": [1, 1, 1], "by_hand": True}
    changes = {"curriculum": [*state["curriculum"], far], "curriculum_changes": 4}
    with pytest.raises(
        StateError, match=r"batch 1000000000 .*more than 100000 epochs of 400 samples"
    ):
        open_dataset(folders).load_state_dict({**state, **changes, "epoch": 10**6})


def test_as_many_epochs_are_planned_as_a_run_may_have(folders, monkeypatch):
    monkeypatch.setattr("streamplug_budget.curriculum._MAX_PLANNED_SAMPLES", 400 * 6)
    monkeypatch.setattr("streamplug_budget.curriculum._ALLOWED_EPOCHS", 3)
    curriculum = {0: [1, 1, 0], 500: [0, 1, 1]}
    state = open_dataset(folders, curriculum=curriculum).state_dict()
    dataset = open_dataset(folders, curriculum=curriculum)
    dataset.load_state_dict({**state, "epoch": 6})
    assert dataset.session.run.next() == Position(6)
    with pytest.raises(StateError, match="more than 6 epochs of 400 samples"):
        open_dataset(folders, curriculum=curriculum).load_state_dict({**state, "epoch": 7})
    with pytest.raises(StateError, match="more than 6 epochs of 400 samples"):
        dataset.load_state_dict({**state, "epoch": 13})
    dataset.load_state_dict({**state, "epoch": 12})  # the beginnings of the first 6 are known


def test_samples_are_explained_and_found(folders):
    dataset = open_dataset(folders, World(1, 2))
    for step in (3, 15, 16, 23):
        uses = dataset.explain(step=step)
        assert all(use in dataset.where(use.sample) for use in uses)
    assert {use.stream for use in dataset.explain(step=15)} <= {0, 1}
    assert {use.stream for use in dataset.explain(step=16)} <= {1, 2}


def test_the_world_changes_while_a_run_goes_on(folders):
    whole = read(open_dataset(folders))
    dataset = open_dataset(folders, World(1, 4, rank=1))
    batches = dataset.batches()
    found = [next(batches)["id"].tolist() for _ in range(6)]
    dataset.resize(World())
    found += [batch["id"].tolist() for batch in batches]
    assert found == whole[1:24:4] + whole[24:]


def test_counts_are_kept_for_other_processes(folders, monkeypatch, tmp_path):
    changes = {0: [1, 1, 0], 4: [0, 1, 1]}
    whole = read(open_dataset(folders, curriculum=changes))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("streamplug_budget.bin_counts._SAMPLES_PER_PROCESS", 100)
    monkeypatch.setattr("streamplug_budget.part_planner._MIN_CACHED_SAMPLES", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert read(open_dataset(folders, curriculum=changes)) == whole
    monkeypatch.setattr("streamplug_budget.bin_counts.map_processes", None)
    assert read(open_dataset(folders, curriculum=changes)) == whole


def test_each_shuffle_has_its_own_plan(folders, monkeypatch, tmp_path):
    shuffles = [{"shuffle_algo": "window"}, {"shuffle_algo": "global"}, {"shuffle": False}]
    orders = [read(open_dataset(folders, **shuffle)) for shuffle in shuffles]
    assert len({str(order) for order in orders}) == 3
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("streamplug_budget.part_planner._MIN_CACHED_SAMPLES", 100)
    assert [read(open_dataset(folders, **shuffle)) for shuffle in shuffles] == orders
