from __future__ import annotations

import json
import pickle
import re
import threading
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError, UnknownNameError
from streamplug.plugin.registry import clear_caches

SIZE = 103


def write(out: Any, numbers: range = range(SIZE), **kwargs: Any) -> str:
    with MDSWriter(columns={"id": "int", "text": "str"}, out=out, **kwargs) as writer:
        for number in numbers:
            writer.write({"id": number, "text": f"sample {number}"})
    return str(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("sets") / "one", size_limit=700)


def ids(samples: Any) -> list[int]:
    return [sample["id"] for sample in samples]


def steps(dataset: StreamingDataset) -> list[list[int]]:
    return [batch["id"].tolist() for batch in dataset.batches()]


# -- random access ------------------------------------------------------------


def test_single_samples_are_read(folder):
    dataset = StreamingDataset(local=folder)
    assert dataset.size == dataset.num_samples == SIZE
    assert dataset.num_shards == len(dataset.samples_per_shard) > 5
    assert dataset[0] == {"id": 0, "text": "sample 0"}
    assert [dataset[i]["id"] for i in (5, -1, -SIZE, np.int64(7), np.uint8(9))] == [
        5,
        SIZE - 1,
        0,
        7,
        9,
    ]


@pytest.mark.parametrize(
    "at",
    [
        slice(None),
        slice(10, 20),
        slice(90, 1000),
        slice(None, None, -7),
        slice(50, 10),
        slice(-5, None, 2),
    ],
)
def test_slices_are_read(folder, at):
    assert ids(StreamingDataset(local=folder)[at]) == list(range(SIZE))[at]


@pytest.mark.parametrize(
    "at",
    [
        [3, 1, 2],
        [-1, 0, -SIZE],
        [],
        (5, 5, 5),
        range(10, 20, 3),
        np.array([100, 2], np.int32),
        np.array([0, 102], np.uint64),
        np.array([], np.int64),
    ],
)
def test_many_samples_are_read_in_the_order_asked_for(folder, at):
    assert ids(StreamingDataset(local=folder)[at]) == [range(SIZE)[i] for i in at]


def test_arrays_of_more_dimensions_are_flattened(folder):
    assert ids(StreamingDataset(local=folder)[np.array([[1, 2], [3, 4]])]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "at",
    [
        SIZE,
        -SIZE - 1,
        10**30,
        [0, SIZE],
        [-SIZE - 1],
        np.array([1 << 62]),
        np.array([(1 << 64) - 1], np.uint64),
        np.array([1 << 63], np.uint64),
        [10**30],
    ],
)
def test_what_is_out_of_range_is_refused(folder, at):
    with pytest.raises(IndexError):
        StreamingDataset(local=folder)[at]


PADDED = pytest.mark.parametrize(
    "options",
    [{"batch_size": SIZE - 3}, {"epoch_size": 2 * SIZE}, {"batch_size": 2 * SIZE}],
    ids=["filled up", "long epoch", "one batch"],
)


@PADDED
@pytest.mark.parametrize(
    "at",
    [SIZE, -SIZE - 1, np.int64(SIZE), np.array(SIZE), [0, SIZE], [-SIZE - 1], np.arange(SIZE + 1)],
)
def test_what_is_within_len_alone_ends_no_loop(folder, options, at):
    dataset = StreamingDataset(local=folder, **options)
    with pytest.raises(ConfigError, match=rf"{SIZE} stored samples.*{len(dataset)}.*as_source\(\)"):
        dataset[at]
    with pytest.raises(IndexError):  # beyond both
        dataset[len(dataset)]
    with pytest.raises(IndexError):
        dataset[[0, len(dataset)]]
    assert len(dataset[: len(dataset)]) == SIZE  # as of a list


@PADDED
def test_padded_data_sets_are_no_sequences(folder, options):
    dataset = StreamingDataset(local=folder, **options)
    with pytest.raises(ConfigError, match=r"as_source\(\)"):
        [dataset[number] for number in range(len(dataset))]
    with pytest.raises(ConfigError, match=r"as_source\(\)"):
        reversed(dataset)
    assert list(reversed(dataset.as_source())) == dataset[::-1]


def test_others_are_sequences(folder):
    dataset = StreamingDataset(local=folder)
    assert list(reversed(dataset)) == dataset[::-1]
    with pytest.raises(ConfigError, match=r"as_source\(\)"):
        reversed(StreamingDataset(local=folder, batch_size=5, world=World(1, 2)))


@pytest.mark.parametrize(
    "at",
    [
        *(1.0, [1.0], "a", ["a"], None, [None], True, [True], {"a": 1}, b"x", np.float32(1)),
        *(np.array([True, False]), np.array(True), np.array(1.0)),
        [[0, 1], [2]],
    ],
)
def test_what_is_no_whole_number_is_refused(folder, at):
    with pytest.raises(IndexError, match=r"samples are chosen by whole numbers, got"):
        StreamingDataset(local=folder)[at]


def test_an_array_of_one_number_is_a_number(folder):
    dataset = StreamingDataset(local=folder)
    assert dataset[np.array(3)] == dataset[3]


def test_an_empty_set_has_no_samples(tmp_path):
    dataset = StreamingDataset(local=write(tmp_path / "empty", range(0)))
    assert (dataset.size, dataset.num_shards, len(dataset)) == (0, 0, 0)
    assert dataset[:] == dataset[[]] == []
    with pytest.raises(IndexError, match=r"sample 0 of a data set with 0 samples"):
        dataset[0]
    with pytest.raises(ConfigError, match=r"the data set has no samples"):
        list(dataset)


def test_columns_are_chosen(folder):
    dataset = StreamingDataset(local=folder, columns=["text"])
    assert dataset[3] == {"text": "sample 3"}
    assert dataset[[4]] == [{"text": "sample 4"}]
    assert next(iter(dataset)) == {"text": "sample 0"}
    assert list(next(dataset.batches(2))) == ["text"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["txt"], r"columns=\['txt'\]: .* has no \['txt'\], only \[.*Did you mean 'text'\?"),
        (["zzz"], r"columns=\['zzz'\]: .* has no \['zzz'\], only \[.*\]$"),
        ("text", r"columns='text': expected a list of names, such as \['text'\]"),
        ([], r"columns=\[\] reads nothing"),
        (map(str, ["text"]), r"columns=<map object at .*>: expected a list of names"),
    ],
)
def test_columns_that_cannot_be_chosen_are_refused(folder, columns, message):
    with pytest.raises(ConfigError, match=message):
        StreamingDataset(local=folder, columns=columns)


# -- several streams ----------------------------------------------------------


@pytest.fixture
def three(tmp_path):
    ranges = [range(10), range(10, 10), range(10, 45)]
    return [
        Stream(local=write(tmp_path / f"set{n}", r, size_limit=400)) for n, r in enumerate(ranges)
    ]


def test_streams_are_joined(three):
    dataset = StreamingDataset(streams=three)
    assert dataset.size == 45
    assert ids(dataset[:]) == list(range(45))
    assert dataset[12]["id"] == 12
    assert ids(dataset) == list(range(45))
    shuffled = StreamingDataset(streams=three, shuffle=True, batch_size=5)
    assert sorted(ids(shuffled)) == list(range(45))


def test_splits_are_joined(tmp_path):
    write(tmp_path / "a", range(5))
    write(tmp_path / "b", range(5, 8))
    streams = [Stream(remote=str(tmp_path), split=name) for name in "ba"]
    assert ids(StreamingDataset(streams=streams)[:]) == [5, 6, 7, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "kwargs", [{}, {"streams": [Stream(local="x")], "local": "x"}, {"split": "train"}]
)
def test_either_streams_or_a_place_is_given(kwargs):
    with pytest.raises(ConfigError, match=r"give either streams= or remote=/local="):
        StreamingDataset(**kwargs)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda _: [], "streams= is empty: give at least one Stream"),
        (
            lambda folder: Stream(remote=folder),
            "streams= takes a list of Stream objects, got Stream",
        ),
        (lambda folder: [folder], "streams= takes a list of Stream objects, got str"),
        (lambda _: 5, "streams= takes a list of Stream objects, got int"),
    ],
)
def test_streams_are_a_list_of_streams(folder, make, text):
    with pytest.raises(ConfigError, match=text):
        StreamingDataset(streams=make(folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 1.5),
        ("batch_size", "4"),
        ("num_canonical_nodes", 0),
        ("shuffle_block_size", 0),
        ("shuffle_block_size", -1),
        ("predownload", -1),
        ("shuffle_seed", -1),
        ("shuffle_seed", 1.5),
    ],
)
def test_numbers_are_checked(folder, name, value):
    with pytest.raises(
        ConfigError, match=rf"^{name}={value!r}: must be a whole number of at least"
    ):
        StreamingDataset(local=folder, **{name: value})


def test_an_unknown_shuffle_is_refused(folder):
    with pytest.raises(
        UnknownNameError, match=r"(?s)unknown shuffle 'windows'. Did you mean 'window'.*global"
    ):
        StreamingDataset(local=folder, shuffle=True, shuffle_algo="windows")


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_shuffle_that_does_not_exist_is_refused_whether_it_is_used_or_not(folder, shuffle):
    with pytest.raises(UnknownNameError, match="Did you mean 'window'"):
        StreamingDataset(local=folder, shuffle=shuffle, shuffle_algo="windwo")
    with pytest.raises(ConfigError, match="shuffle=False for none"):
        StreamingDataset(local=folder, shuffle=shuffle, shuffle_algo=None)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "shuffle_algo": "py1s"},
        {"shuffle_algo": "py1s"},
        {"partition_algo": "orig"},
        {"partition_algo": "relaxed"},
    ],
)
def test_what_is_not_installed_is_refused_with_its_distribution_before_any_io(
    tmp_path, monkeypatch, options
):
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", "streamplug-mosaic")
    clear_caches()
    try:
        with pytest.raises(UnknownNameError, match="streamplug-mosaic"):
            StreamingDataset(remote=str(tmp_path / "missing"), **options)
    finally:
        monkeypatch.undo()
        clear_caches()


# -- iteration ----------------------------------------------------------------


def test_samples_come_in_stored_order_unless_shuffled(folder):
    dataset = StreamingDataset(local=folder)
    assert ids(dataset) == list(range(SIZE))
    assert len(dataset) == SIZE


@pytest.mark.parametrize("algo", ["window", "global"])
def test_each_epoch_has_an_order_of_its_own(folder, algo):
    make = lambda: StreamingDataset(local=folder, shuffle=True, shuffle_algo=algo, batch_size=1)  # noqa: E731
    dataset, again = make(), make()
    epochs = [ids(dataset) for _ in range(3)]
    assert all(sorted(epoch) == list(range(SIZE)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [ids(again) for _ in range(3)] == epochs


def test_samples_and_batches_agree(folder):
    make = lambda: StreamingDataset(local=folder, shuffle=True, batch_size=8)  # noqa: E731
    batches = list(make().batches())
    samples = list(make())
    assert len(samples) == len(make()) == 8 * len(batches) == 104
    flat = [i for batch in batches for i in batch["id"].tolist()]
    assert ids(samples) == flat
    assert [s["text"] for s in samples] == [t for batch in batches for t in batch["text"]]
    assert isinstance(batches[0]["id"], np.ndarray)
    assert all(len(batch["id"]) == len(batch["text"]) == 8 for batch in batches)


def test_an_epoch_is_filled_up_to_whole_batches(folder):
    dataset = StreamingDataset(local=folder, batch_size=10)
    assert steps(dataset)[-1] == [100, 101, 102, 0, 1, 2, 3, 4, 5, 6]


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    total=st.sampled_from([1, 2, 6, 12]),
    canonical_nodes=st.sampled_from([1, 2, 3, 500]),
    algo=st.sampled_from([None, "window", "global"]),
    data=st.data(),
)
def test_global_batches_do_not_depend_on_the_world(folder, total, canonical_nodes, algo, data):
    def global_steps(world: tuple[int, int]) -> list[list[int]]:
        nodes, local = world
        ranks = [
            StreamingDataset(
                local=folder,
                batch_size=total // (nodes * local),
                num_canonical_nodes=canonical_nodes,
                shuffle=algo is not None,
                shuffle_algo=algo or "window",
                shuffle_block_size=20,
                world=World(nodes, local, rank=rank),
            )
            for rank in range(nodes * local)
        ]
        assert len({len(rank) for rank in ranks}) == 1
        return [sorted(chain(*parts)) for parts in zip(*map(steps, ranks), strict=True)]

    worlds = [(n, r) for n in range(1, 5) for r in range(1, 5) if total % (n * r) == 0]
    world = data.draw(st.sampled_from(worlds))
    expected = global_steps((1, 1))
    assert global_steps(world) == expected
    assert {i for step in expected for i in step} == set(range(SIZE))


def test_more_canonical_nodes_than_samples_are_no_harm(tmp_path):
    local = write(tmp_path / "few", range(3))
    dataset = StreamingDataset(
        local=local, batch_size=2, num_canonical_nodes=64, shuffle=True, world=World(nodes=2)
    )
    assert len(dataset) == 2
    assert len(ids(dataset)) == 2


def test_the_world_is_taken_from_the_launcher(folder, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    dataset = StreamingDataset(local=folder, batch_size=4)
    world = World(nodes=2, rank=1)
    assert steps(dataset) == steps(StreamingDataset(local=folder, batch_size=4, world=world))


@pytest.mark.parametrize("batch", [0, -1, 2.5, True, "2"])
def test_batches_are_of_a_whole_number_of_samples(folder, batch):
    dataset = StreamingDataset(local=folder)
    with pytest.raises(ConfigError, match=rf"batch_size={batch!r}: must be a whole number of at"):
        next(dataset.batches(batch))
    assert dataset.batch_size is None


@pytest.mark.parametrize("batch", [None, 3])
def test_batches_need_one_batch_size(folder, batch):
    dataset = StreamingDataset(local=folder, batch_size=batch)
    if batch is None:
        with pytest.raises(ConfigError, match=r"no batch size: give it here, or as batch_size="):
            next(dataset.batches())
        assert next(dataset.batches(4))["id"].tolist() == [0, 1, 2, 3]
        assert dataset.batch_size == 4
    else:
        with pytest.raises(
            ConfigError, match=r"batch_size=4 differs from batch_size=3 of the data set"
        ):
            next(dataset.batches(4))
        assert next(dataset.batches(3))["id"].tolist() == [0, 1, 2]


class Marked(StreamingDataset):
    """Changes samples on their way out."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {**sample, "marked": True} if isinstance(sample, dict) else sample


def test_a_subclass_that_changes_samples_is_honoured(folder):
    dataset = Marked(local=folder, shuffle=True, batch_size=4)
    samples = list(dataset)
    assert all(sample["marked"] for sample in samples)
    assert ids(samples) == ids(StreamingDataset(local=folder, shuffle=True, batch_size=4))


def test_breaking_off_leaves_no_threads(folder, tmp_path):
    before = set(threading.enumerate())  # of loops that other tests left by an error
    dataset = StreamingDataset(remote=folder, local=str(tmp_path), batch_size=4, predownload=1000)
    for way in (iter, lambda d: d.batches()):
        for number, _ in enumerate(way(dataset)):
            if number == 2:
                break
        it = way(dataset)
        next(it)
        it.close()
        del it
    started = set(threading.enumerate()) - before
    assert [thread for thread in started if "streamplug" in thread.name] == []


def test_iteration_goes_on_through_many_blocks(folder, monkeypatch):
    monkeypatch.setattr("streamplug.run.feed._BLOCK_ROWS", 8)
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=4)
    first = ids(dataset)
    monkeypatch.setattr("streamplug.run.feed._BLOCK_STORED_BYTES", 1)
    again = StreamingDataset(local=folder, shuffle=True, batch_size=4)
    assert ids(again) == first
    monkeypatch.undo()
    assert ids(StreamingDataset(local=folder, shuffle=True, batch_size=4)) == first


# -- state --------------------------------------------------------------------


def make(folder: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(**{"local": folder, "shuffle": True, "batch_size": 8, **kwargs})


@pytest.mark.parametrize("stop", [0, 1, 5, 12, 13])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_run_continues_where_it_stood(folder, epoch, stop):
    dataset = make(folder)
    for _ in range(epoch):
        list(dataset.batches())
    it = dataset.batches()
    for _ in range(stop):
        next(it)
    saved = json.loads(json.dumps(dataset.state_dict()))
    expected = [[b["id"].tolist() for b in it], steps(dataset)]
    again = make(folder)
    again.load_state_dict(saved)
    if stop == 0 and epoch:
        # Nothing was asked for yet: the state is at the end of the epoch before.
        assert (saved["epoch"], saved["sample_in_epoch"]) == (epoch, 0)
    assert again.state_dict() == saved
    assert [steps(again), steps(again)] == expected


@pytest.mark.parametrize("stop", [0, 1, 7, 8, 9, 16, 103, 104])
def test_states_are_at_the_last_whole_batch(folder, stop):
    dataset = make(folder)
    it = iter(dataset)
    for _ in range(stop):
        next(it)
    saved = dataset.state_dict()
    assert saved["sample_in_epoch"] == stop // 8 * 8
    again = make(folder)
    again.load_state_dict(saved)
    assert ids(again) == ids(make(folder))[stop // 8 * 8 :]


def test_after_an_epoch_the_state_is_at_the_next(folder):
    dataset = make(folder)
    list(dataset)
    saved = dataset.state_dict()
    assert (saved["epoch"], saved["sample_in_epoch"]) == (1, 0)


def test_an_epoch_that_was_broken_off_is_not_continued(folder):
    dataset, whole = make(folder), make(folder)
    steps(whole)
    for _ in dataset.batches():
        break
    assert steps(dataset) == steps(whole)


def test_a_resumed_epoch_is_followed_by_whole_ones(folder):
    whole = make(folder)
    epochs = [steps(whole) for _ in range(4)]
    dataset = make(folder)
    saved = dataset.state_dict(num_samples=24)
    assert (saved["epoch"], saved["sample_in_epoch"]) == (0, 24)
    dataset.load_state_dict({**saved, "epoch": 2})
    assert [steps(dataset), steps(dataset)] == [epochs[2][3:], epochs[3]]


def test_samples_are_counted_from_the_beginning_or_from_the_resumption(folder):
    dataset = make(folder)
    dataset.load_state_dict(dataset.state_dict(num_samples=24))
    assert dataset.state_dict(16, from_beginning=False)["sample_in_epoch"] == 40
    assert dataset.state_dict(16)["sample_in_epoch"] == 16
    next(dataset.batches())
    assert dataset.state_dict(16, from_beginning=False)["sample_in_epoch"] == 40
    steps(dataset)
    assert dataset.state_dict(16, from_beginning=False)["sample_in_epoch"] == 16
    assert dataset.state_dict(16, from_beginning=False)["epoch"] == 1
    with pytest.raises(ConfigError, match="from_beginning='no': must be True or False"):
        dataset.state_dict(16, from_beginning="no")


@pytest.mark.parametrize("samples", [1, 7, 9, -8, 0.5, 1.5, 8.5])
def test_a_number_of_samples_inside_a_batch_is_refused(folder, samples):
    with pytest.raises(StateError, match="not a multiple of the global batch size 8"):
        make(folder).state_dict(num_samples=samples)


def test_more_samples_than_an_epoch_has_are_refused_when_a_state_is_saved(folder):
    dataset = make(folder)
    size = len(dataset)
    for samples in (0, 8, size):
        make(folder).load_state_dict(dataset.state_dict(samples))
    with pytest.raises(StateError, match=f"num_samples={10 * size}: .*an epoch has"):
        dataset.state_dict(10 * size)
    dataset.load_state_dict(dataset.state_dict(size))
    with pytest.raises(StateError, match=f"num_samples={9 * size}: "):
        dataset.state_dict(9 * size, from_beginning=False)


def test_a_state_moves_to_another_world(folder):
    one = make(folder, batch_size=12, world=World())
    whole = steps(one)
    saved = one.state_dict(num_samples=36)
    for nodes, local in [(1, 1), (2, 1), (1, 3), (2, 2), (3, 4)]:
        ranks = []
        for rank in range(nodes * local):
            world = World(nodes, local, rank=rank)
            again = make(folder, batch_size=12 // world.ranks, world=world)
            assert len(again) > 0  # settles nothing that the state would not override
            again.load_state_dict({**saved, "epoch": 0})
            ranks.append(steps(again))
        found = [sorted(chain(*parts)) for parts in zip(*ranks, strict=True)]
        assert found == [sorted(step) for step in whole[3:]]


def test_a_state_brings_the_batch_size_where_there_is_none(folder):
    saved = make(folder).state_dict(num_samples=16)
    dataset = make(folder, batch_size=None)
    dataset.load_state_dict(saved)
    assert dataset.batch_size == 8
    assert steps(dataset) == steps(make(folder))[2:]


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("size", {}),
        ("global_batch", {"batch_size": 4}),
        ("shuffle_algo", {"shuffle": False}),
        ("shuffle_algo", {"shuffle_algo": "global"}),
        ("shuffle_seed", {"shuffle_seed": 1}),
        ("shuffle_block_size", {"shuffle_block_size": 5}),
        ("num_canonical_nodes", {"num_canonical_nodes": 3}),
    ],
)
def test_a_state_of_another_run_is_refused_by_what_differs(folder, tmp_path, name, kwargs):
    saved = make(folder).state_dict(num_samples=16)
    place = folder if kwargs else write(tmp_path / "other", range(50))
    other = make(place, **kwargs)
    expected = steps(make(place, **kwargs))
    with pytest.raises(StateError, match=rf"the state is of another run: .*{name}: saved "):
        other.load_state_dict(saved)
    assert steps(other) == expected


def test_a_state_of_other_shards_is_refused(folder, tmp_path):
    saved = make(folder).state_dict()
    other = make(write(tmp_path / "other", size_limit=1000))
    with pytest.raises(StateError) as caught:
        other.load_state_dict(saved)
    shards = (
        rf"shards of each stream: saved \[{make(folder).num_shards}\], now \[{other.num_shards}\]"
    )
    assert re.fullmatch(f"the state is of another run: {shards}", str(caught.value))


def test_a_state_names_the_stream_whose_shards_differ(tmp_path):
    def mix(name, sizes):
        folders = []
        for number, limit in enumerate(sizes):
            folder = tmp_path / f"{name}-{number}"
            with MDSWriter(out=folder, columns={"id": "int"}, max_samples_per_shard=limit) as out:
                out.write_batch({"id": list(range(60))})
            folders.append(Stream(local=str(folder)))
        return StreamingDataset(streams=folders, batch_size=4)

    saved = json.loads(json.dumps(mix("one", [20, 20, 14]).state_dict()))
    with pytest.raises(StateError, match=r"another run: shards: those of stream 2 \(from 0\) have"):
        mix("other", [20, 20, 13]).load_state_dict(saved)
    mix("same", [20, 20, 14]).load_state_dict(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"num_canonical_nodes": 7, "shuffle_seed": 5},
        {"num_canonical_nodes": -1},
        {"num_canonical_nodes": 10**30},
        {"global_batch": -8},
        {"global_batch": 0},
        {"global_batch": 8.0, "epoch": -1},
        {"epoch": 10**30},
        {"sample_in_epoch": 10**30},
        {"version": 7},
        {"version": True},
        {"epoch": None},
        {"epoch": 1 << 61},
        {"sample_in_epoch": 8 * 10**6},
        {"shuffle_algo": [[[[[["deep"]]]]]] * 1000},
    ],
)
@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_state_that_is_refused_changes_nothing(folder, change, batch_size):
    saved = make(folder).state_dict(num_samples=16)
    dataset = make(folder, batch_size=batch_size)
    with pytest.raises(StateError):
        dataset.load_state_dict({**saved, **change})
    assert dataset.batch_size == batch_size
    assert [b["id"].tolist() for b in dataset.batches(8)] == steps(make(folder))


@pytest.mark.parametrize("state", [None, [], "x", 7])
def test_what_is_no_state_is_refused(folder, state):
    with pytest.raises(StateError, match="a state is what state_dict"):
        make(folder).load_state_dict(state)


def test_numbers_of_numpy_are_as_good_as_others(folder):
    names = (
        "batch_size",
        "num_canonical_nodes",
        "shuffle_seed",
        "shuffle_block_size",
        "epoch_size",
    )
    plain = make(folder, **dict.fromkeys(names, 8))
    numpy = make(folder, **dict.fromkeys(names, np.int64(8)))
    assert steps(numpy) == steps(plain)
    assert json.loads(json.dumps(numpy.state_dict())) == plain.state_dict()
    with pytest.raises(ConfigError, match="batch_size=True: must be a whole number"):
        make(folder, batch_size=True)


def test_a_loop_does_not_go_on_once_the_run_was_given_another_place(folder):
    dataset = make(folder)
    batches = dataset.batches()
    next(batches)
    dataset.load_state_dict(dataset.state_dict())
    with pytest.raises(ConfigError, match="leave the loop and start another"):
        next(batches)
    assert dataset.state_dict()["sample_in_epoch"] == 8


def test_a_state_of_mosaicml_streaming_is_understood(folder):
    saved = {
        "epoch": 1,
        "sample_in_epoch": 24,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
        "initial_physical_nodes": 1,
    }
    dataset, whole = make(folder), make(folder, num_canonical_nodes=2)
    steps(whole)
    dataset.load_state_dict(saved)
    assert steps(dataset) == steps(whole)[3:]


def test_a_state_at_the_end_of_an_epoch_gives_an_empty_rest(folder):
    dataset = make(folder)
    dataset.load_state_dict(dataset.state_dict(num_samples=104))
    assert steps(dataset) == []
    whole = make(folder)
    steps(whole)
    assert steps(dataset) == steps(whole)


def test_the_state_of_a_canonical_number_survives_a_later_number_of_nodes(folder):
    one = make(folder, world=World(nodes=2), batch_size=4)
    expected = steps(one)
    saved = one.state_dict(num_samples=16)
    again = make(folder, world=World(nodes=1), batch_size=8)
    again.load_state_dict({**saved, "epoch": 0})
    second = make(folder, world=World(nodes=2, rank=1), batch_size=4)
    both = [sorted(a + b) for a, b in zip(expected, steps(second))]
    assert [sorted(step) for step in steps(again)] == both[2:]


def test_a_copy_goes_on_by_itself(folder):
    dataset = make(folder)
    steps(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    assert steps(copy) == steps(dataset)
    assert copy[5] == dataset[5]


def test_a_copy_keeps_its_place_in_the_world(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    dataset = make(folder)
    expected = steps(dataset)
    dataset.load_state_dict(make(folder).state_dict())
    pickled = pickle.dumps(dataset)
    monkeypatch.undo()
    assert steps(pickle.loads(pickled)) == expected
