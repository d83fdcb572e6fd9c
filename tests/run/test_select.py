"""Data sets of selected rows: any reading gives these rows, in an order that does not depend on the world."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamingDataset, World
from streamplug.errors import ConfigError, StateError, UnknownNameError
from tests.mixing import needs_mixing

COUNT = 300
ROWS_PER_SHARD = 20


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("select")
    for name in ("a", "b"):
        options = {"columns": {"n": "int", "text": "str"}, "max_samples_per_shard": ROWS_PER_SHARD}
        with MDSWriter(out=root / name, **options) as out:
            for n in range(COUNT):
                out.write({"n": n, "text": f"{name}{n}"})
    return root


def selected(root, select, **options):
    return StreamingDataset(remote=str(root / "a"), select=select, **options)


def texts(dataset):
    return [sample["text"] for sample in dataset]


SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
some_rows = st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=80, unique=True)
quick = settings(
    max_examples=25 if SOAK else 8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(some_rows)
def test_selected_rows_are_read_in_any_way(root, rows):
    dataset = selected(root, rows)
    expected = [{"n": n, "text": f"a{n}"} for n in sorted(rows)]
    assert (len(dataset), dataset.size, dataset.num_shards) == (len(rows), len(rows), 15)
    assert [dataset[n] for n in range(len(rows))] == expected
    assert dataset[::-1] == expected[::-1]
    assert dataset[-1] == expected[-1]
    assert list(dataset) == expected
    batches = list(dataset.batches(7))
    numbers = [n for batch in batches for n in batch["n"].tolist()]
    assert numbers[: len(rows)] == sorted(rows)  # the last batch is filled up
    counts = np.bincount(np.array(sorted(rows)) // ROWS_PER_SHARD, minlength=15)
    assert dataset.samples_per_shard.tolist() == counts.tolist()


def samples_of_ranks(root, rows, world, state=None, **options):
    """Return the samples of each global step: ranks of a step concatenated in their order."""
    steps: dict[int, list[int]] = {}
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, rank=rank)
        dataset = selected(
            root, rows, batch_size=24 // world.ranks, world=place, shuffle=True, **options
        )
        if state is not None:
            dataset.load_state_dict(state)
        for step, batch in enumerate(dataset.batches()):
            steps.setdefault(step, []).extend(batch["n"].tolist())
    return list(steps.values())


@pytest.mark.parametrize("shuffle_algo", ["window", "global"])
@quick
@given(some_rows, st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 8), (3, 8)]), st.data())
def test_the_order_and_resuming_do_not_depend_on_the_world(root, shuffle_algo, rows, shape, data):
    options = {"shuffle_algo": shuffle_algo, "num_canonical_nodes": 2}
    single = samples_of_ranks(root, rows, World(), **options)
    assert {n for step in single for n in step} == set(rows)
    many = samples_of_ranks(root, rows, World(*shape), **options)
    assert [sorted(step) for step in many] == [sorted(step) for step in single]

    stopped = selected(root, rows, batch_size=24, shuffle=True, **options)
    step = data.draw(st.integers(0, len(single) - 1))
    batches = stopped.batches()
    for _ in range(step):
        next(batches)
    state = stopped.state_dict()
    batches.close()
    rest = samples_of_ranks(root, rows, World(*shape), state, **options)
    assert [sorted(step) for step in rest] == [sorted(step) for step in single[step:]]


def test_streams_have_selections_of_their_own(root):
    streams = [
        Stream(remote=str(root / "a"), select=range(5, 8)),
        Stream(remote=str(root / "b")),
        Stream(remote=str(root / "b"), select=[299, 0]),
        Stream(remote=str(root / "a"), select=np.arange(COUNT) == 7, repeat=2),
    ]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=4)
    expected = ["a5", "a6", "a7", *(f"b{n}" for n in range(COUNT)), "b0", "b299", "a7", "a7"]
    assert dataset.samples_per_stream.tolist() == [3, COUNT, 2, 1]
    assert sorted(texts(dataset)[: len(expected)]) == sorted(expected)
    use = dataset.where(3 + COUNT + 1, epoch=0)[0]
    assert (use.stream, use.shard, use.index) == (2, 14, 19)


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        pytest.param({"proportion": 0.5}, {"batching_method": "stratified"}, marks=needs_mixing),
        pytest.param({"proportion": 0.5}, {"batching_method": "per_stream"}, marks=needs_mixing),
        pytest.param(
            {}, {"curriculum": {0: [1, 0], 3: [0.5, 0.5]}, "epoch_size": 60}, marks=needs_mixing
        ),
        ({"choose": 11}, {"sampling_granularity": 4}),
    ],
)
def test_mixtures_curricula_and_batching_read_only_selected_rows(root, weights, options):
    rows = {"a": range(10, 60), "b": [1, 2, 3, 250, 251, 252, 7, 8, 9, 30, 31, 32]}
    streams = [
        Stream(remote=str(root / name), select=some, **weights) for name, some in rows.items()
    ]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=4, **options)
    for _ in range(2):
        found = texts(dataset)
        assert found
        assert set(found) <= {f"{name}{n}" for name, some in rows.items() for n in some}


@pytest.mark.parametrize("access", ["shard", "range"])
def test_shards_without_a_selected_row_are_never_asked_for(root, tmp_path, access):
    with serving(root) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/a", local=str(tmp_path), access=access, select=[0, 3, 41, 299],
            shuffle=True, batch_size=2,
        )  # fmt: skip
        for _ in range(2):
            assert sorted(texts(dataset)) == ["a0", "a299", "a3", "a41"]
    asked = {request[1].rpartition("/")[2] for request in server.requests}
    assert asked == {"index.json", *(f"shard.{n:05d}.mds" for n in (0, 2, 14))}


@pytest.mark.parametrize("compression", [None, "gz"])
def test_each_shard_is_read_whole_or_by_ranges_whichever_is_less(tmp_path, compression):
    generator = np.random.default_rng(0)
    with MDSWriter(
        out=tmp_path / "set", columns={"n": "int", "data": "bytes"}, compression=compression,
        max_samples_per_shard=100,
    ) as out:  # fmt: skip
        for n in range(1000):
            out.write({"n": n, "data": generator.bytes(5000)})
    rows = [*range(100, 200), 310, 350, *range(400, 480), 990]
    options = {"access": "auto", "select": rows, "shuffle": True, "batch_size": 4}
    with serving(tmp_path) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/set", local=str(tmp_path / "cache"), **options
        )
        for _ in range(2):
            assert {int(sample["n"]) for sample in dataset} == set(rows)
        assert [int(dataset[n]["n"]) for n in range(len(rows))] == rows
        numbers = [n for batch in dataset.batches() for n in batch["n"].tolist()]
        assert set(numbers) == set(rows)
        assert dataset.where(0)[0].shard == 1
    kept = {path.name for path in (tmp_path / "cache").glob("shard*.mds")}
    whole = range(10) if compression else (1, 4)
    assert kept == {f"shard.{n:05d}.mds" for n in whole if n in (1, 3, 4, 9)}
    if compression is None:  # two shards, and in each of four passes the samples of the others
        assert server.bytes_sent < 2 * 100 * 5020 + 4 * 3 * (5020 + 20_000)


def test_shards_in_the_cache_are_not_read_by_ranges(tmp_path):
    with MDSWriter(
        out=tmp_path / "set", columns={"n": "int", "data": "bytes"}, max_samples_per_shard=100
    ) as out:
        for n in range(400):
            out.write({"n": n, "data": bytes(5000)})
    with serving(tmp_path) as server:
        options = {"remote": f"{server.url}/set", "local": str(tmp_path / "cache")}
        assert len(list(StreamingDataset(**options, select=range(200)))) == 200
        sent = server.bytes_sent
        dataset = StreamingDataset(**options, access="auto", select=[10, 150, 390])
        assert [int(sample["n"]) for sample in dataset] == [10, 150, 390]
        shards = [path for _, path, _ in server.requests if "shard" in path]
        assert shards[2:]
        assert {path.rpartition("/")[2] for path in shards[2:]} == {"shard.00003.mds"}
        assert server.bytes_sent - sent < 50_000


def test_a_state_of_other_rows_is_refused_with_the_difference(root):
    state = selected(root, range(10), batch_size=2).state_dict()
    selected(root, list(range(9, -1, -1)), batch_size=2).load_state_dict(state)
    for select in (range(1, 11), range(20), None):
        words = "saved of a select=, now all rows" if select is None else "both of a select="
        message = rf"select: other rows of stream 0 \(from 0\) .*in the state: {words}(;|$)"
        with pytest.raises(StateError, match=message):
            selected(root, select, batch_size=2).load_state_dict(state)
    plain = selected(root, None, batch_size=2).state_dict()
    with pytest.raises(StateError, match="select: other rows of stream 0"):
        selected(root, range(10), batch_size=2).load_state_dict(plain)


def test_of_two_streams_the_differing_one_is_named(root):
    def both(*selections):
        streams = [Stream(remote=str(root / "a"), select=select) for select in selections]
        return StreamingDataset(streams=streams, batch_size=2)

    state = both(range(10), None).state_dict()
    both(range(10), None).load_state_dict(state)
    with pytest.raises(StateError, match=r"select: other rows of stream 1 \(from 0\)"):
        both(range(10), range(COUNT)).load_state_dict(state)
    with pytest.raises(StateError, match=r"select: other rows of stream 0 \(from 0\)"):
        both(range(2, 12), None).load_state_dict(state)


def test_a_selection_that_does_not_fit_is_refused(root):
    with pytest.raises(
        ConfigError, match=r"Stream\(.*select= has row 300, the stream has 300 rows"
    ):
        selected(root, [300])
    with pytest.raises(ConfigError, match="select= is a mask of 5 rows, the stream has 300"):
        selected(root, [True] * 5)
    with pytest.raises(ConfigError, match="give each stream a select= of its own"):
        StreamingDataset(streams=[Stream(remote=str(root / "a"))], select=[1])


def test_an_epoch_without_rows_is_refused(root):
    with pytest.raises(ConfigError, match="an epoch of the data set has no samples"):
        list(selected(root, [], batch_size=2))


def test_the_selection_is_shown(root):
    assert "3 selected" in str(Stream(remote=str(root / "a"), select=[1, 2, 3]).object_summary())


@pytest.mark.skipif(find_spec("streamplug_views") is not None, reason="it is installed")
def test_an_expression_names_the_distribution_that_it_needs(root):
    with pytest.raises(UnknownNameError, match=r"select='n > 3': .*pip install streamplug-views"):
        selected(root, "n > 3")
