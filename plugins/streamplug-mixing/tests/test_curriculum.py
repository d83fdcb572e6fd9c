"""Batching methods, curricula and replicas of ranks, as a user of a data set meets them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from tests.run.numbered_streams import write_numbered
from tests.states import values, with_values

SIZES = (70, 30, 100)
CURRICULUM = {0: [0.75, 0.25, 0], 9: [0, 0.5, 0.5]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_numbered(tmp_path_factory.mktemp("streams"), SIZES)


def make(folders, world=(1, 1), rank=0, batch=16, **changes):
    arguments = {"shuffle": True, "shuffle_block_size": 50, "num_canonical_nodes": 2}
    return StreamingDataset(
        streams=[Stream(local=folder) for folder in folders],
        world=World(*world, rank=rank),
        batch_size=batch,
        **{**arguments, **changes},
    )


def ranks_of(folders, world=(1, 1), total=16, **changes):
    count = world[0] * world[1]
    return [make(folders, world, rank, total // count, **changes) for rank in range(count)]


def epoch_of(runs):
    parts = [
        [list(zip(b["stream"].tolist(), b["n"].tolist())) for b in run.batches()] for run in runs
    ]
    return [sorted(sample for part in step for sample in part) for step in zip(*parts)]


def counts(step):
    return Counter(stream for stream, _ in step)


@pytest.mark.parametrize("method", ["random", "stratified", "per_stream", "device_per_stream"])
@pytest.mark.parametrize("curriculum", [None, CURRICULUM])
def test_a_run_goes_on_anywhere(folders, method, curriculum):
    changes = {"batching_method": method, "curriculum": curriculum}
    alone = make(folders, **changes)
    epochs = [epoch_of([alone]), epoch_of([alone])]
    late = alone.state_dict()
    assert late["epoch"] == 2
    for step in (5, 9):
        alone.load_state_dict({**late, "epoch": 0, "sample_in_epoch": step * 16})
        state = json.loads(json.dumps(alone.state_dict()))
        for world in ((1, 1), (2, 2), (4, 2)):
            runs = ranks_of(folders, world, **changes)
            for run in runs:
                run.load_state_dict(state)
            assert epoch_of(runs) == epochs[0][step:]
            assert epoch_of(runs) == epochs[1]
            assert len(runs[0]) == len(epochs[0]) * 16 // (world[0] * world[1])


def test_batches_are_of_what_their_method_says(folders):
    for step in epoch_of([make(folders, batching_method="per_stream")]):
        assert len(counts(step)) == 1
    for step in epoch_of([make(folders, batching_method="stratified", batch=20)]):
        assert counts(step) in ({0: 7, 1: 3, 2: 10}, {0: 7, 1: 2, 2: 11}, {0: 8, 1: 3, 2: 9})
    runs = ranks_of(folders, (1, 4), batching_method="device_per_stream")
    for run in runs:
        assert all(len(set(batch["stream"].tolist())) == 1 for batch in run.batches())


def test_a_rank_batch_of_device_per_stream_moves_to_smaller_ranks(folders):
    changes = {"batching_method": "device_per_stream"}
    first = ranks_of(folders, (1, 2), **changes)
    state = first[0].state_dict()
    assert values(state)["initial_world"] == [1, 2]
    expected = epoch_of(first)
    for world in ((1, 1), (1, 4), (2, 1)):
        runs = ranks_of(folders, world, **changes)
        for run in runs:
            run.load_state_dict(state)
        assert epoch_of(runs) == expected


@pytest.mark.parametrize("method", ["stratified", "per_stream", "device_per_stream"])
def test_lengths_are_those_of_what_comes(folders, method):
    pytest.importorskip("streamplug_mosaic")
    for run in ranks_of(folders, (1, 4), batching_method=method, partition_algo="orig"):
        assert len(run) == sum(len(batch["n"]) for batch in run.batches()) > 0


def test_explain_and_where_know_the_batching_method(folders):
    runs = ranks_of(folders, (2, 2), batching_method="stratified")
    firsts = np.cumsum([0, *SIZES])
    for step, batch in enumerate(epoch_of(runs)):
        uses = runs[1].explain(step, epoch=0)
        assert sorted((u.stream, u.sample - int(firsts[u.stream])) for u in uses) == batch
        assert uses[0] in runs[1].where(uses[0].sample, epoch=0)


# -- curricula --------------------------------------------------------------------------


def test_shares_change_at_their_step(folders):
    run = make(folders, curriculum=CURRICULUM, epoch_size=128)
    steps = epoch_of([run]) + epoch_of([run])
    assert all(counts(step) == {0: 12, 1: 4} for step in steps[:9])
    assert all(counts(step) == {1: 8, 2: 8} for step in steps[9:])
    own = [n for step in steps for stream, n in step if stream == 1]
    assert set(Counter(own).values()) == {3, 4}  # passes: 36 + 56 samples of 30


def test_steps_and_shares_may_be_numbers_of_numpy(folders):
    asked = {np.int64(0): np.array([0.75, 0.25, 0]), 9: [0, np.float32(0.5), np.float64(0.5)]}
    run, plain = make(folders, curriculum=asked), make(folders, curriculum=CURRICULUM)
    assert epoch_of([run]) == epoch_of([plain])
    assert json.loads(json.dumps(run.state_dict())) == plain.state_dict()


def test_steps_may_be_text(folders):
    asked = json.loads(json.dumps(CURRICULUM))
    assert epoch_of([make(folders, curriculum=asked)]) == epoch_of(
        [make(folders, curriculum=CURRICULUM)]
    )


def test_shares_are_changed_while_a_run_stands(folders):
    run = make(folders, curriculum={0: [1, 1, 2]})
    batches = run.batches()
    before = [
        counts(next(batches)["stream"].tolist()) if False else next(batches) for _ in range(5)
    ]
    assert all(Counter(b["stream"].tolist()) == {0: 4, 1: 4, 2: 8} for b in before)
    run.load_state_dict(run.state_dict())
    run.set_proportions([0, 0, 1])
    after = epoch_of([run])
    assert len(after) == 13 - 5
    assert all(counts(step) == {2: 16} for step in after)
    state = run.state_dict()
    assert values(state)["segments"] == [
        {"epoch": 0, "done": 0, "proportions": [1.0, 1.0, 2.0], "planned": True},
        {"epoch": 0, "done": 5 * 16, "proportions": [0.0, 0.0, 1.0]},
    ]
    following = epoch_of([run])
    # One that knows only how it began learns the rest from the state.
    other = make(folders, curriculum={0: [1, 1, 2]})
    other.load_state_dict(state)
    assert epoch_of([other]) == following
    assert other.state_dict() == run.state_dict()


def test_shares_may_be_changed_where_a_change_was_planned(folders):
    run = make(folders, curriculum={0: [1, 1, 2], 13: [0, 1, 0]})
    run.set_proportions([1, 0, 0])
    assert set(counts(epoch_of([run])[0])) == {0}
    run.set_proportions([0, 0, 1])  # at step 13
    state = run.state_dict()
    again = make(folders, curriculum={0: [1, 1, 2], 13: [0, 1, 0]})
    again.load_state_dict(state)
    assert epoch_of([again]) == epoch_of([run])
    assert set(counts(epoch_of([make(folders, curriculum={0: [1, 1, 2]})])[0])) == {0, 1, 2}


def test_streams_in_another_order_are_another_run(folders):
    state = make(folders[:2], curriculum={0: [1, 1]}).state_dict()
    with pytest.raises(StateError, match=r"streams: saved \[70, 30\], now \[30, 70\]"):
        make(folders[1::-1], curriculum={0: [1, 1]}).load_state_dict(
            with_values(state, shards=values(make(folders[1::-1]).state_dict())["shards"])
        )


@pytest.mark.parametrize("step", [3, 5, 6])
def test_a_resume_before_at_and_after_a_change(folders, step):
    run = make(folders, curriculum={0: [1, 1, 2], 5: [1, 0, 0]})
    whole = epoch_of([run])
    state = {**run.state_dict(), "epoch": 0, "sample_in_epoch": step * 16}
    runs = ranks_of(folders, (2, 2), curriculum={0: [1, 1, 2], 5: [1, 0, 0]})
    for each in runs:
        each.load_state_dict(state)
    rest = epoch_of(runs)
    assert rest == whole[step:]
    assert [counts(batch) for batch in rest] == [
        {0: 4, 1: 4, 2: 8} if number < 5 else {0: 16} for number in range(step, 13)
    ]


def test_the_future_may_be_planned_anew_and_the_past_may_not(folders):
    run = make(folders, curriculum={0: [1, 1, 2], 5: [1, 0, 0]})
    state = {**run.state_dict(), "sample_in_epoch": 4 * 16}
    later = make(folders, curriculum={0: [1, 1, 2], 8: [0, 0, 1]})
    later.load_state_dict(state)
    assert [set(counts(step)) for step in epoch_of([later])] == [{0, 1, 2}] * 4 + [{2}] * 5
    with pytest.raises(StateError, match=r"curriculum up to .*: saved \[.*1.0, 1.0, 2.0"):
        make(folders, curriculum={0: [1, 1, 1]}).load_state_dict(state)
    with pytest.raises(StateError, match=r"choose: saved None, now \[70, 30, 100\]"):
        make(folders).load_state_dict(state)
    plain = make(folders).state_dict()
    with pytest.raises(StateError, match=r"choose: saved \[70, 30, 100\], now None"):
        make(folders, curriculum={0: [1, 1, 1]}).load_state_dict(plain)


def test_a_change_at_the_step_of_a_state_is_that_of_the_curriculum(folders):
    run = make(folders, curriculum={0: [1, 1, 2], 5: [1, 0, 0]})
    state = {**run.state_dict(), "sample_in_epoch": 5 * 16}
    planned = {"epoch": 0, "done": 5 * 16, "proportions": [1, 0, 0], "planned": True}
    state = with_values(state, segments=[*values(state)["segments"], planned])
    for changes, streams in (({}, {0, 1, 2}), ({5: [0, 1, 0]}, {1}), ({6: [0, 1, 0]}, {0, 1, 2})):
        again = make(folders, curriculum={0: [1, 1, 2], **changes})
        again.load_state_dict(state)
        assert set(counts(epoch_of([again])[0])) == streams
    run.load_state_dict(state)
    run.set_proportions([0, 0, 1])  # by hand, which a state keeps
    again.load_state_dict(run.state_dict())
    assert set(counts(epoch_of([again])[0])) == {2}


@pytest.mark.parametrize(
    "past",
    [
        {},
        7,
        [{"epoch": 0}],
        [{"epoch": 0, "done": 16, "proportions": [1, 1]}],
        [7],
        [{"epoch": 0, "done": 16, "proportions": [10**400] * 3}],
        [{"epoch": 0, "done": 16, "proportions": [1, 0, 0]}] * 2,
        [
            {"epoch": 1, "done": 0, "proportions": [1, 0, 0]},
            {"epoch": 0, "done": 16, "proportions": [1] * 3},
        ],
        [{"epoch": 1 << 70, "done": 0, "proportions": [1, 1, 2]}],
    ],
)
def test_a_state_with_a_damaged_curriculum_is_refused(folders, past):
    run = make(folders, curriculum={0: [1, 1, 2]})
    ours = values(run.state_dict())["segments"]
    damaged = past if not isinstance(past, list) else [*ours, *past]
    with pytest.raises(StateError, match="segments"):
        run.load_state_dict(with_values(run.state_dict(), segments=damaged))
    assert len(epoch_of([run])) == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"curriculum": {1: [1, 1, 1]}}, r"steps \[1\] must begin at 0"),
        ({"curriculum": {}}, r"steps \[\] must begin at 0"),
        (
            {"curriculum": {0: [1, 1, 1], "0": [1, 2, 3]}},
            r"steps \[0, 0\] must begin at 0 and be distinct",
        ),
        ({"curriculum": {"first": [1, 1, 1]}}, "'first' is not a step"),
        ({"curriculum": {-1: [1, 1, 1]}}, "-1 is not a step"),
        ({"curriculum": {True: [1, 1, 1]}}, "True is not a step"),
        ({"curriculum": {0: [1, 1]}}, "2 proportions for 3 streams"),
        ({"curriculum": {0: [0, 0, 0]}}, "not all of them 0"),
        ({"curriculum": {0: [1, -1, 0]}}, "numbers of at least 0"),
        ({"curriculum": {0: [1, float("nan"), 0]}}, r"expected numbers below 1e\+100"),
        ({"curriculum": {0: [1, 10**400, 0]}}, "expected numbers"),
        ({"curriculum": {0: "111"}}, "expected numbers"),
        ({"curriculum": {0: ["a", 1, 1]}}, "expected numbers"),
        ({"curriculum": {10**19: [1, 1, 1]}}, "is not a step"),
        ({"curriculum": [[1, 1, 1]]}, "expected proportions by step"),
        (
            {"curriculum": {0: [1, 1, 1]}, "partition_algo": "orig"},
            "needs partition_algo='elastic'",
        ),
        ({"curriculum": {0: [1, 1, 1]}, "sampling_method": "fixed"}, "have no meaning with it"),
        ({"curriculum": {0: [1, 1, 1]}, "sampling_granularity": 2}, "have no meaning with it"),
        (
            {"batching_method": "mixed"},
            r"unknown order 'mixed'.*\nAvailable: .*per_stream, random",
        ),
        ({"replication": 0}, "replication=0: must be"),
    ],
)
def test_what_has_no_meaning_is_refused(folders, arguments, message):
    pytest.importorskip("streamplug_mosaic")
    with pytest.raises(ConfigError, match=message):
        make(folders, **arguments)


def test_weights_of_streams_and_a_curriculum_exclude_each_other(folders):
    with pytest.raises(ConfigError, match="takes the place of the streams' proportion"):
        StreamingDataset(
            streams=[Stream(local=folders[0], choose=3), Stream(local=folders[1])],
            curriculum={0: [1, 1]},
        )
    with pytest.raises(ConfigError, match="or with curriculum="):
        make(folders).set_proportions([1, 1, 1])


def test_an_empty_stream_has_no_share(folders, tmp_path):
    with MDSWriter(out=tmp_path / "none", columns={"stream": "int", "n": "int"}):
        pass
    three = [*folders[:2], str(tmp_path / "none")]
    with pytest.raises(ConfigError, match=r"stream 2 has no samples, and its proportion is 2\.0"):
        make(three, curriculum={0: [1, 1, 2]})
    assert counts(epoch_of([make(three, curriculum={0: [1, 1, 0]})])[0]) == {0: 8, 1: 8}
    stratified = epoch_of([make(three, batching_method="stratified")])
    assert sum(map(counts, stratified), Counter()) == {0: 78, 1: 34}  # filled up to 112


# -- replicas ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "by"), [((1, 4), 2), ((2, 4), 2), ((4, 2), 4), ((3, 2), 3), ((2, 3), 6), ((1, 4), 1)]
)
def test_ranks_of_a_group_get_the_same(folders, world, by):
    count = world[0] * world[1]
    total = 12 * (count // by)
    runs = [make(folders, world, rank, 12, replication=by) for rank in range(count)]
    parts = [[b["n"].tolist() for b in run.batches()] for run in runs]
    for rank in range(count):
        assert parts[rank] == parts[rank // by * by]
    alone = epoch_of([make(folders, batch=total)])
    groups = epoch_of(
        [make(folders, world, rank, 12, replication=by) for rank in range(0, count, by)]
    )
    assert groups == alone
    assert values(runs[0].state_dict())["global_batch"] == total


def test_ranks_that_are_no_groups_are_refused(folders):
    with pytest.raises(ConfigError, match="replication=3: the 4 ranks are not groups of 3"):
        next(make(folders, (1, 4), replication=3).batches())
