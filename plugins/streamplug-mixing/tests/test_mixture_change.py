"""Proportions of a run begun with proportion= that are changed while it stands."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from streamplug import Stream, StreamingDataset, World
from streamplug.errors import ConfigError
from streamplug.plan import Position, Segment
from tests.run.numbered_streams import write_numbered
from tests.states import values

SIZES = (70, 30, 100)
SHARES = (0.5, 0.25, 0.25)
METHODS = ["random", "stratified", "per_stream", "device_per_stream"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_numbered(tmp_path_factory.mktemp("streams"), SIZES)


def make(folders, world=(1, 1), rank=0, weight="proportion", values=SHARES, **changes):
    arguments = {"shuffle": True, "shuffle_block_size": 50, "num_canonical_nodes": 2}
    return StreamingDataset(
        streams=[Stream(local=f, **{weight: value}) for f, value in zip(folders, values)],
        world=World(*world, rank=rank),
        batch_size=16 // (world[0] * world[1]),
        **{**arguments, **changes},
    )


def ranks_of(folders, world, state, **changes):
    runs = [make(folders, world, rank, **changes) for rank in range(world[0] * world[1])]
    for run in runs:
        run.load_state_dict(state)
    return runs


def epoch_of(runs):
    parts = [
        [list(zip(b["stream"].tolist(), b["n"].tolist())) for b in run.batches()] for run in runs
    ]
    return [sorted(sample for part in step for sample in part) for step in zip(*parts)]


def state_at(run, epoch, step):
    return json.loads(json.dumps(run.session.state_at(epoch, step)))


def test_a_changed_run_keeps_its_global_batch(folders):
    run = make(folders)
    run.set_proportions([0, 1, 1])
    with pytest.raises(ConfigError, match="the global batch of 16 becomes 12, which needs"):
        run.resize(World(), batch_size=12)
    assert len(next(run.batches())["n"]) == 16


def test_a_batch_by_device_has_the_unit_of_the_run(folders):
    run = make(folders, batching_method="device_per_stream")
    segments = [Segment(Position(), World(1, 4), 14, 2)]
    with pytest.raises(ConfigError, match="a global batch of 14 is no multiple of 3"):
        run.session.run.planner.epoch(0, segments)


@pytest.mark.parametrize("method", METHODS)
def test_a_changed_run_goes_on_anywhere(folders, method):
    changes = {"batching_method": method}
    undisturbed = make(folders, **changes)
    before = [epoch_of([undisturbed]) for _ in range(2)]
    run = make(folders, **changes)
    run.load_state_dict(state_at(run, 1, 4))
    run.set_proportions([0, 1, 1])
    after = [epoch_of([run]) for _ in range(2)]
    assert len(after[0]) == len(before[1]) - 4
    assert len(after[1]) == len(before[0])
    streams = Counter(stream for epoch in after for step in epoch for stream, _ in step)
    assert set(streams) == {1, 2}
    assert values(run.state_dict())["segments"] == [
        {"epoch": 1, "done": 4 * 16, "proportions": [0.0, 1.0, 1.0]}
    ]
    for epoch, step, expected in (
        (1, 4, after[0]),
        (1, 7, after[0][3:]),
        (2, 3, after[1][3:]),
        (1, 2, before[1][2:]),  # a state of before the change knows nothing of it
    ):
        state = state_at(run, epoch, step)
        assert ("segments" in values(state)) == ((epoch, step) >= (1, 4))
        for world in ((1, 1), (2, 2)):
            assert epoch_of(ranks_of(folders, world, state, **changes)) == expected
    # Steps before and after are known, also to a data set that was resumed.
    again = ranks_of(folders, (1, 1), state_at(run, 2, 3), **changes)[0]
    firsts = np.cumsum([0, *SIZES])
    whole = {0: before[0], 1: before[1][:4] + after[0], 2: after[1]}
    for epoch, steps in whole.items():
        for step, samples in enumerate(steps):
            uses = again.explain(step, epoch=epoch)
            assert sorted((u.stream, u.sample - int(firsts[u.stream])) for u in uses) == samples
        assert uses[0] in again.where(uses[0].sample, epoch=epoch)


def test_a_loaded_state_undoes_a_change_that_came_after_it(folders):
    run = make(folders)
    state = run.state_dict()
    expected = epoch_of([run])
    run.set_proportions([1, 0, 0])
    assert epoch_of([run]) != expected
    run.load_state_dict(state)
    assert epoch_of([run]) == expected


def test_a_loaded_state_undoes_a_change_of_a_curriculum(folders):
    run = make(folders, weight="choose", values=(None,) * 3, curriculum={0: [1, 1, 2]})
    state = run.state_dict()
    expected = epoch_of([run])
    run.set_proportions([1, 0, 0])
    run.load_state_dict(state)
    assert epoch_of([run]) == expected
    assert {stream for step in epoch_of([run]) for stream, _ in step} == {0, 1, 2}


MIXTURES = {
    "proportion": {},
    "curriculum": {"weight": "choose", "values": (None,) * 3, "curriculum": {0: [1, 1, 2]}},
    "replaced": {
        "weight": "choose",
        "values": (None,) * 3,
        "curriculum": {0: [1] * 3, 3: [0, 1, 1]},
    },
}


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize(("rewind", "kept"), [(1, 2), (3, 1), (4, 0)])
def test_a_resize_that_rewinds_past_a_change_undoes_it(folders, mixture, rewind, kept):
    changes = MIXTURES[mixture]
    undisturbed = epoch_of([make(folders, **changes)])
    run = make(folders, (1, 2), **changes)
    for step, proportions in ((3, [1, 0, 0]), (5, [0, 1, 0])):
        run.load_state_dict(state_at(run, 0, step))
        run.set_proportions(proportions)
    batches = run.batches()
    next(batches)
    run.resize(World(), rewind=rewind)
    state = run.state_dict()
    changes_by_hand = [c for c in values(state).get("segments", []) if "planned" not in c]
    assert len(changes_by_hand) == kept
    expected = epoch_of(ranks_of(folders, (1, 1), state, **changes))
    rest = [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for b in batches]
    assert rest == expected
    assert (rest == undisturbed[6 - rewind :]) == (kept == 0)
    assert run.state_dict() == state_at(run, 1, 0)


def test_a_change_at_the_end_of_an_epoch_and_again(folders):
    run = make(folders)
    first = epoch_of([run])
    run.set_proportions([1, 1, 2])
    run.set_proportions([0, 0, 1])
    second = epoch_of([run])
    run.set_proportions([1, 0, 0])
    third = epoch_of([run])
    assert [{s for step in epoch for s, _ in step} for epoch in (first, second, third)] == [
        {0, 1, 2}, {2}, {0},
    ]  # fmt: skip
    segments = values(run.state_dict())["segments"]
    assert [(change["epoch"], change["done"]) for change in segments] == [(1, 0), (2, 0)]
    again = ranks_of(folders, (2, 2), state_at(run, 1, 5))
    assert epoch_of(again) == second[5:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": "repeat", "values": (1, 2, 1)}, "begin the run with proportion="),
        ({"weight": "choose", "values": (9, 9, 9)}, "begin the run with proportion="),
        ({"weight": "choose", "values": (None,) * 3}, "begin the run with proportion="),
        ({"sampling_method": "fixed"}, "sampling_method='fixed'"),
        ({"sampling_granularity": 4}, "sampling_granularity=4"),
        ({"partition_algo": "orig"}, "partition_algo='orig': needs 'elastic'"),
    ],
)
def test_runs_that_cannot_change_say_so(folders, changes, message):
    pytest.importorskip("streamplug_mosaic")
    run = make(folders, **changes)
    before = run.state_dict()
    with pytest.raises(ConfigError, match=message):
        run.set_proportions([1, 1, 1])
    assert run.state_dict() == before


def test_proportions_must_be_those_of_the_streams(folders):
    with pytest.raises(ConfigError, match="2 proportions for 3 streams"):
        make(folders).set_proportions([1, 1])


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_workers_of_a_loop_that_rewinds_drop_a_change(folders, workers, persistent):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader

    first, second = (epoch_of([run]) for run in [make(folders)] * 2)
    run = make(folders)
    run.load_state_dict(state_at(run, 0, 3))
    run.set_proportions([0, 1, 0])
    loader = StreamingDataLoader(
        run, batch_size=16, num_workers=workers, persistent_workers=persistent
    )
    batches = iter(loader)
    for _ in range(2):
        assert set(next(batches)["stream"].tolist()) == {1}
    # The second change of the world comes before each worker has seen the first.
    loader.resize(World(), rewind=3)
    got = [next(batches)]
    loader.resize(World())
    got += [next(batches)]
    loader.resize(World())
    got += batches
    assert [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for b in got] == first[2:]
    assert [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for b in loader] == second


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_torch_goes_on(folders, workers):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader

    def loader_of(data):
        return StreamingDataLoader(data, batch_size=16, num_workers=workers)

    expected = make(folders)
    expected.load_state_dict(state_at(expected, 0, 3))
    expected.set_proportions([0, 1, 0])
    steps = epoch_of([expected])
    loader = loader_of(make(folders))
    for _ in zip(range(3), loader):
        pass
    loader.load_state_dict(loader.state_dict())
    loader.dataset.set_proportions([0, 1, 0])
    batches = iter(loader)
    got = [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for _, b in zip(range(4), batches)]
    state = loader.state_dict()
    later = loader_of(make(folders))
    later.load_state_dict(state)
    got += [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for b in later]
    assert got == steps


@pytest.mark.parametrize("method", METHODS)
def test_a_change_by_hand_at_the_end_of_an_epoch_replaces_a_planned_one(folders, method):
    changes = {**MIXTURES["curriculum"], "curriculum": {0: [1, 1, 2], 13: [0, 1, 0]}}
    run = make(folders, batching_method=method, **changes)
    batches = run.batches()
    for _ in range(13):
        next(batches)
    run.set_proportions([1, 0, 0])  # after the last batch, before the end
    state = run.state_dict()
    assert list(batches) == []
    following = epoch_of([run])
    assert {stream for step in following for stream, _ in step} == {0}
    for saved in (state, state_at(run, 1, 0), state_at(run, 1, 4)):
        [again] = ranks_of(folders, (1, 1), saved, batching_method=method, **changes)
        if saved["epoch"] == 0:
            assert epoch_of([again]) == []
        assert epoch_of([again]) == following[4 * (saved.get("sample_in_epoch") == 64) :]
