"""Streams with weights: exact counts per epoch, on any world, resumed anywhere."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from tests.mixing import needs_mixing
from tests.states import values, with_values

SIZES = (70, 30, 100)


@pytest.fixture
def folders(tmp_path):
    for number, size in enumerate(SIZES):
        out = tmp_path / str(number)
        with MDSWriter(out=out, columns={"stream": "int", "n": "int"}, size_limit="500b") as writer:
            writer.write_batch({"stream": [number] * size, "n": list(range(size))})
    return [str(tmp_path / str(number)) for number in range(len(SIZES))]


def mixed(folders, weights, rank=0, world=(1, 1), batch=8, **changes):
    streams = [Stream(local=folder, **weight) for folder, weight in zip(folders, weights)]
    arguments = {"shuffle": True, "shuffle_block_size": 50, "num_canonical_nodes": 2}
    return StreamingDataset(
        streams=streams,
        world=World(*world, rank=rank),
        batch_size=batch,
        **{**arguments, **changes},
    )


def global_batches(folders, weights, world=(1, 1), total=16, first=None, **changes):
    ranks = world[0] * world[1]
    runs = [
        mixed(folders, weights, rank, world, total // ranks, **changes) for rank in range(ranks)
    ]
    for run in runs if first else ():
        run.load_state_dict(first)
    parts = [
        [list(zip(b["stream"].tolist(), b["n"].tolist())) for b in run.batches()] for run in runs
    ]
    return [sorted(sample for part in step for sample in part) for step in zip(*parts)]


def per_stream(batches):
    return Counter(stream for batch in batches for stream, _ in batch)


PROPORTIONS = [{"proportion": 0.5}, {"proportion": 0.3}, {"proportion": 0.2}]


def test_proportions_are_kept_exactly_over_an_epoch(folders):
    batches = global_batches(folders, PROPORTIONS, epoch_size=160)
    assert per_stream(batches) == {0: 80, 1: 48, 2: 32}
    counts = Counter(sample for batch in batches for sample in batch)
    assert Counter(n for (stream, _), n in counts.items() if stream == 0) == {1: 60, 2: 10}
    assert Counter(n for (stream, _), n in counts.items() if stream == 1) == {1: 12, 2: 18}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([{"repeat": 2}, {"repeat": 0.5}, {}], {0: 140, 1: 15, 2: 100}),
        ([{"choose": 7}, {"choose": 90}, {"repeat": 0}], {0: 7, 1: 90}),
    ],
)
def test_repeat_and_choose(folders, weights, expected):
    epoch = mixed(folders, weights, batch=1, num_canonical_nodes=1)
    assert len(epoch) == sum(expected.values())
    assert Counter(sample["stream"] for sample in epoch) == expected


@pytest.mark.parametrize("epoch_size", [200, "0.2k"])
def test_an_epoch_size_without_weights(folders, epoch_size):
    epoch = mixed(folders[:2], [{}, {}], batch=1, num_canonical_nodes=1, epoch_size=epoch_size)
    assert Counter(sample["stream"] for sample in epoch) == {0: 140, 1: 60}


@pytest.mark.parametrize("weights", [[{}] * 3, [{"proportion": share} for share in (0, 1, 2)]])
def test_a_stream_without_a_share_may_be_empty(folders, tmp_path, weights):
    MDSWriter(out=tmp_path / "empty", columns={"stream": "int", "n": "int"}).finish()
    for seed in (11, 14):  # by these, the remainder of 1 would go to the first of three streams
        epoch = mixed(
            [str(tmp_path / "empty"), *folders[1:]], weights, epoch_size=101, shuffle_seed=seed
        )
        counts = Counter(n for batch in epoch.batches() for n in batch["stream"].tolist())
        assert set(counts) == {1, 2}


@pytest.mark.parametrize("partition", ["elastic", "orig"])
def test_global_batches_do_not_depend_on_the_world(folders, partition):
    pytest.importorskip("streamplug_mosaic")
    changes = {"epoch_size": 160, "partition_algo": partition}
    expected = global_batches(folders, PROPORTIONS, **changes)
    for world in ((1, 2), (2, 2), (2, 4), (1, 16)):
        assert global_batches(folders, PROPORTIONS, world, **changes) == expected


def test_a_run_resumes_on_another_world(folders):
    run = mixed(folders, PROPORTIONS, batch=16, epoch_size=160)
    list(run.batches())
    batches = run.batches()
    for _ in range(4):
        next(batches)
    state = run.state_dict()
    rest = [sorted(zip(b["stream"].tolist(), b["n"].tolist())) for b in batches]
    assert values(state)["choose"] == [80, 48, 32]
    assert global_batches(folders, PROPORTIONS, (2, 2), first=state, epoch_size=160) == rest


@pytest.mark.parametrize("partition", ["orig", "relaxed"])
@pytest.mark.parametrize("method", ["stratified", "per_stream", "device_per_stream"])
@pytest.mark.parametrize("worlds", [((1, 2), (1, 4)), ((2, 2), (1, 2)), ((1, 1), (2, 4))])
def test_streams_that_were_combined_for_a_world_are_read_on_another(
    folders, partition, method, worlds
):
    pytest.importorskip("streamplug_mosaic")
    options = {"partition_algo": partition, "batching_method": method, "num_canonical_nodes": 4}
    runs = [
        [
            mixed(folders, [{}] * 3, rank, world, 16 // World(*world).ranks, **options)
            for rank in range(World(*world).ranks)
        ]
        for world in worlds
    ]
    (before, *_), after = runs
    state = before.session.state_at(0, 4)
    for rank in after:
        rank.load_state_dict(json.loads(json.dumps(state)))
    assert after[0].state_dict() == state
    loops = [rank.batches() for rank in after]
    for step in range(4, before.session.run.epoch(0, World(*worlds[0])).steps(World(*worlds[0]))):
        expected = [use.sample for use in before.explain(step, epoch=0)]
        uses = after[0].explain(step, epoch=0)
        assert [use.sample for use in uses] == expected
        assert all(use in after[0].where(use.sample, epoch=0) for use in uses)
        read = [
            number + np.cumsum([0, *SIZES])[stream]
            for batch in (next(loop, {"stream": [], "n": []}) for loop in loops)
            for stream, number in zip(batch["stream"], batch["n"])
        ]
        assert read == expected
    assert [next(loop, None) for loop in loops] == [None] * len(loops)
    for saved in (with_values(state, initial_world=world) for world in (None, [1, 3], [1], 2)):
        with pytest.raises(StateError, match=r"the state has initial_world=.* for which its batch"):
            after[0].load_state_dict(saved)


@needs_mixing
def test_a_state_without_the_batch_size_of_its_first_ranks_is_refused(folders):
    options = {"batching_method": "device_per_stream"}
    state = mixed(folders, [{}] * 3, 0, (1, 2), 8, **options).session.state_at(0, 2)
    assert values(state)["initial_world"] == [1, 2]
    other = mixed(folders, [{}] * 3, 0, (1, 4), 4, **options)
    other.load_state_dict(state)
    for saved in (with_values(state, initial_world=world) for world in (None, [1, 3])):
        with pytest.raises(StateError, match=r"the state has initial_world=.* for which its b"):
            other.load_state_dict(saved)
    assert other.state_dict() == state


def test_a_state_of_other_weights_is_refused(folders):
    state = mixed(folders, PROPORTIONS, epoch_size=160).state_dict()
    other = mixed(folders, [{"proportion": 1}] * 3, epoch_size=160)
    with pytest.raises(StateError, match=r"choose: saved \[80, 48, 32\], now \[53, 53, 54\]"):
        other.load_state_dict(with_values(state, choose=[80, 48, 32]))


@pytest.mark.parametrize(("method", "same"), [("fixed", True), ("balanced", False)])
def test_what_is_chosen_changes_with_the_epoch_or_not(folders, method, same):
    run = mixed(folders, [{"choose": 20}] * 3, sampling_method=method, batch=60)
    first, second = (
        sorted(zip(b["stream"].tolist(), b["n"].tolist()))
        for b in (next(run.batches()), next(run.batches()))
    )
    assert (first == second) == same


def test_explain_and_where_know_the_mixture(folders):
    run = mixed(folders, PROPORTIONS, batch=16, epoch_size=160)
    uses = [use for step in range(10) for use in run.explain(step, epoch=0)]
    ids = [use.sample for use in uses]
    firsts = np.cumsum([0, *SIZES])
    for batch, step in zip(run.batches(), range(10)):
        own = [use for use in uses if use.step == step]
        assert [use.stream for use in own] == batch["stream"].tolist()
        assert [u.sample - firsts[u.stream] for u in own] == batch["n"].tolist()
    for sample in range(0, 200, 9):
        assert run.where(sample, epoch=0) == [use for use in uses if use.sample == sample]
    assert len(set(ids)) < len(ids)


def test_weights_without_a_meaning_are_refused(folders):
    with pytest.raises(ConfigError, match="one of proportion, repeat and choose"):
        Stream(local=folders[0], proportion=1, choose=2)
    with pytest.raises(ConfigError, match="sampling_method='best': choose one of balanced, fixed"):
        mixed(folders, [{}] * 3, sampling_method="best")
    with pytest.raises(ConfigError, match="sampling_granularity=0: must be"):
        mixed(folders, [{}] * 3, sampling_granularity=0)
    with pytest.raises(ConfigError, match="epoch_size='many': expected a count"):
        mixed(folders, [{}] * 3, epoch_size="many")
    with pytest.raises(ConfigError, match="an epoch of the data set has no samples"):
        next(mixed(folders, [{"repeat": 0}] * 3).batches())


# -- what the data set gives to its streams -------------------------------------------------


@pytest.fixture
def splits(tmp_path):
    """Two data sets with two splits each, whose samples say which."""
    for place in ("a", "b"):
        for split in ("train", "val"):
            with MDSWriter(out=tmp_path / place / split, columns={"from": "str"}) as writer:
                writer.write_batch({"from": [f"{place}/{split}"] * 10})
    return tmp_path


def sources(dataset):
    return sorted({sample["from"] for sample in dataset})


def test_the_split_of_a_data_set_is_that_of_streams_that_have_none(splits):
    def read(**stream):
        streams = [Stream(remote=str(splits / "a"), **stream), Stream(remote=str(splits / "b"))]
        return StreamingDataset(streams=streams, split="train", batch_size=1)

    assert sources(read()) == ["a/train", "b/train"]
    assert sources(read(split="val")) == ["a/val", "b/train"]
    assert sources(read(split="")) == ["a/train", "b/train"]  # an empty one is none
    assert [stream.split for stream in read(split="val").streams] == ["val", "train"]


def test_the_split_of_a_data_set_reaches_caches_and_configs(splits):
    remotes = [f"file://{splits / place}" for place in "ab"]
    config = {
        "streams": [
            {"remote": remote, "local": str(splits / f"cache-{number}")}
            for number, remote in enumerate(remotes)
        ],
        "split": "val",
        "batch_size": 1,
    }
    assert sources(StreamingDataset.from_config(config)) == ["a/val", "b/val"]
    assert (splits / "cache-1" / "val" / "index.json").exists()


def test_every_option_of_streams_that_a_data_set_has_reaches_them(splits):
    options = {
        "split": "val",
        "download_retry": 7,
        "download_timeout": 8.0,
        "keep_zip": True,
        "cache_limit": "1gb",
        "access": "shard",
        "storage_options": {"auto_mkdir": False},
        "decoders": {},
    }
    place = {"remote": f"file://{splits / 'a'}", "local": str(splits / "cache")}
    dataset = StreamingDataset(streams=[Stream(**place)], **options)
    stream = dataset.streams[0]
    assert {name: getattr(stream, name) for name in options} == options
    own = {
        **options,
        "split": "train",
        "download_retry": 0,
        "keep_zip": False,
        "cache_limit": 10**9,
    }
    kept = StreamingDataset(streams=[Stream(**place, **own)], **options).streams[0]
    assert {name: getattr(kept, name) for name in options} == own


@needs_mixing
def test_the_split_of_a_data_set_reaches_curricula(splits):
    streams = [Stream(remote=str(splits / place)) for place in "ab"]
    halves = StreamingDataset(
        streams=streams, split="val", curriculum={0: [0.5, 0.5]}, batch_size=1, shuffle=True
    )
    assert sources(halves) == ["a/val", "b/val"]
