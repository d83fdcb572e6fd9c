"""A mixture that becomes a curriculum at a step: the same in every world, and continued."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.errors import ConfigError, StateError
from streamplug.plan import (
    ChangedMixture,
    Curriculum,
    ElasticPartitionAlgorithm,
    EpochConfig,
    Mixture,
    Place,
    Planner,
    ShardSampler,
    change_mixture,
    resume_mixture,
)
from streamplug.types import World

SIZES = (40, 25, 60)
STARTS = np.cumsum([0, 20, 20, 25, 10, 50])  # shards of three streams
STREAM_SHARDS = [0, 2, 3, 5]
TOTAL = 12  # samples of a global batch
SCHEDULED = ["stratified", "per_stream", "device_per_stream"]
methods = st.sampled_from(["random", *SCHEDULED])
choices = st.sampled_from([SIZES, (20, 60, 45), (90, 0, 30)])


def mixture_of(choose=SIZES, **changes):
    options = {"method": "balanced", "granularity": 1, "is_relative": True}
    return Mixture(tuple(choose), sampler=ShardSampler(), **{**options, **changes})


class Plan:
    """Epochs of the streams by a mixture."""

    def __init__(self, mixture, method):
        algorithms = WindowShuffle(), ElasticPartitionAlgorithm()
        self.planner = Planner(STARTS, STREAM_SHARDS, mixture, *algorithms, shuffled=True)
        self.config = EpochConfig(5, 3, 16, "elastic", 1, method, 3)

    def epoch(self, number, world, batch):
        return self.planner.epoch(number, world, batch, self.config)

    def ids(self, number, world, batch):
        """Sample ids of a whole epoch, shape [ranks, steps, batch]."""
        epoch = self.epoch(number, world, batch)
        ranks = [World(world.nodes, world.ranks_per_node, 1, r) for r in range(world.ranks)]
        return np.array([epoch.ids(rank, batch, np.arange(epoch.steps)) for rank in ranks])

    def batches(self, number, world, batch):
        ids = np.concatenate(list(self.ids(number, world, batch)), axis=1)
        return np.sort(ids, axis=1).tolist()


def stream_of(ids):
    return np.searchsorted(STARTS[STREAM_SHARDS], ids, side="right") - 1


@st.composite
def worlds(draw):
    """A world and a batch size with `TOTAL` samples per global batch."""
    ranks = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    nodes = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    return World(nodes, ranks // nodes), TOTAL // ranks


def changed_at(step, proportions=(0, 1, 3), choose=SIZES):
    return change_mixture(mixture_of(choose), SIZES, step, list(proportions))


@given(methods, choices, st.integers(0, 40), st.data())
def test_steps_before_the_change_stay_and_all_are_the_same_in_every_world(
    method, choose, step, data
):
    steps_of = lambda mixture, world, batch: [  # noqa: E731
        ids for number in range(3) for ids in Plan(mixture, method).batches(number, world, batch)
    ]
    before = steps_of(mixture_of(choose), World(), TOTAL)
    changed = changed_at(step, choose=choose)
    alone = steps_of(changed, World(), TOTAL)
    assert len(alone) == len(before)
    assert alone[:step] == before[:step]
    assert steps_of(changed, *data.draw(worlds())) == alone
    counts = np.bincount(stream_of(np.array(alone[step:])).reshape(-1))
    if method == "stratified" and step < len(alone):
        assert (counts == np.array([0, 3, 9]) * (len(alone) - step)).all()


@settings(deadline=None, max_examples=20)
@given(methods, st.integers(0, 30), st.integers(0, 2), st.data())
def test_where_a_sample_is_seen_about_a_change(method, step, number, data):
    world, batch = data.draw(worlds())
    plan = Plan(changed_at(step), method)
    seen = defaultdict(set)
    for (rank, at, place), sample in np.ndenumerate(plan.ids(number, world, batch)):
        seen[int(sample)].add(Place(at, rank, place))
    epoch = plan.epoch(number, world, batch)
    assert epoch.length(world, batch) == plan.planner.length(world, batch, plan.config)
    for sample in range(sum(SIZES)):
        assert set(epoch.where(world, batch, sample)) == seen[sample]


@pytest.mark.parametrize("method", SCHEDULED)
@pytest.mark.parametrize("step", [4, 9, 15])
def test_the_pass_of_a_stream_goes_on(method, step):
    plan = Plan(changed_at(step, (1, 1, 1)), method)
    per_epoch = plan.epoch(0, World(), TOTAL).steps
    ids = np.concatenate([plan.ids(number, World(), TOTAL)[0] for number in range(4)])
    ids = ids[step // per_epoch * per_epoch :].reshape(-1)  # from the epoch of the change on
    for stream, size in enumerate(SIZES):
        own = ids[stream_of(ids) == stream]
        padded = -(-size // 3) * 3 if method == "device_per_stream" else size
        for first, length in ((0, padded), (padded, size)):
            counts = Counter(own[first : first + length].tolist())
            assert len(counts) == size  # every sample, and only padding twice


def test_passes_begin_anew_where_an_epoch_has_one_order_for_all_streams():
    plan = Plan(changed_at(5), "random")
    ids = np.concatenate([plan.ids(number, World(), TOTAL)[0] for number in range(3)])[5:]
    for stream in (1, 2):
        own = ids[stream_of(ids) == stream]
        assert len(set(own[: SIZES[stream]].tolist())) == SIZES[stream]


def test_changes_are_saved_by_step_of_the_run_and_resumed():
    changed = changed_at(7).with_change(9, [1, 0, 0]).with_change(9, [0, 0, 1])
    saved = changed.changes_until(20)
    assert saved == [
        {"step": 7, "proportions": [0.0, 1.0, 3.0], "by_hand": True},
        {"step": 9, "proportions": [0.0, 0.0, 1.0], "by_hand": True},
    ]
    assert changed.changes_until(8) == saved[:1]
    assert changed.changes_until(6) == []
    assert changed.identity() == mixture_of().identity()
    again = resume_mixture(mixture_of(), {"curriculum": saved}, SIZES, lambda _: 20)
    assert isinstance(again, ChangedMixture)
    assert (again.step, again.after) == (changed.step, changed.after)
    assert (
        resume_mixture(mixture_of(), {"curriculum": saved}, SIZES, lambda _: 8).changes_until(20)
        == saved[:1]
    )
    assert isinstance(
        resume_mixture(mixture_of(), {"curriculum": saved}, SIZES, lambda _: 6), Mixture
    )


def test_many_changes_are_resumed_at_once(monkeypatch):
    saved = [{"step": 2 * n, "proportions": [1, n, 2]} for n in range(1, 1001)]
    monkeypatch.setattr(Curriculum, "with_change", None)
    again = resume_mixture(mixture_of(), {"curriculum": saved}, SIZES, lambda _: 1999)
    assert again.changes_until(5000) == [{**change, "by_hand": True} for change in saved[:-1]]


def test_changes_that_were_not_saved_whole_are_refused():
    saved = {"curriculum": changed_at(7).changes_until(9), "curriculum_changes": 2}
    with pytest.raises(StateError, match="1 of 2 changes of its curriculum"):
        resume_mixture(mixture_of(), saved, SIZES, lambda _: 9)
    assert isinstance(
        resume_mixture(mixture_of(), {"curriculum_changes": 0}, SIZES, lambda _: 9), Mixture
    )


def test_a_curriculum_is_changed_and_resumed_as_before():
    curriculum = Curriculum.parse({0: [1, 1, 1]}, SIZES, 120)
    changed = change_mixture(curriculum, SIZES, 4, [1, 0, 0])
    saved = {"curriculum": changed.changes_until(9), "curriculum_changes": 2}
    assert resume_mixture(curriculum, saved, SIZES, lambda _: 9) == changed


@pytest.mark.parametrize("saved", [[], [7], [{"step": 3}], [{"step": 3, "proportions": [1]}], 5])
def test_invalid_changes_are_refused(saved):
    with pytest.raises(StateError, match="curriculum"):
        resume_mixture(mixture_of(), {"curriculum": saved}, SIZES, lambda _: 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_relative": False}, "begin the run with proportion= of each stream"),
        ({"method": "fixed"}, "sampling_method='fixed'"),
        ({"granularity": 4}, "sampling_granularity=4"),
    ],
)
def test_mixtures_of_parts_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        change_mixture(mixture_of(**changes), SIZES, 3, [1, 1, 1])


def test_selections_are_those_of_epochs_before_the_change():
    of = [
        Plan(mixture, "random").planner.selection(1, 5).samples(np.arange(10)).tolist()
        for mixture in (mixture_of(), changed_at(5))
    ]
    assert of[0] == of[1]
