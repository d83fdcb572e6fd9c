"""Data sets whose batches have a limited cost."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from functools import partial
from threading import Lock
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_budget import BatchBudget
from streamplug_budget.processes import map_processes
from streamplug_ranges import read_header_sizes
from streamplug_testing import isolated_plugins
from streamplug_testing.fakes import FailingInts

from streamplug import MDSWriter, Stream, StreamingDataset, World, register_compression
from streamplug.builtin.compressions.gzip import Gzip
from streamplug.builtin.encodings.array import NDArrayEncoding
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.cli import main
from streamplug.errors import (
    ConfigError,
    DataError,
    PluginError,
    StateError,
    StreamplugError,
    TooManyBadSamplesError,
    UnsafeTypeError,
)
from streamplug.plan.state import unpack
from streamplug.plugin.registry import register, unregister

RNG = np.random.default_rng(5)
LENGTHS = np.clip(RNG.lognormal(3, 1, 600), 1, 200).astype(int).tolist()
LIMIT = 400
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "tokens"
    columns = {
        "n": "int", "tokens": "ndarray:uint16", "length": "int", "text": "str", "image": "ndarray"
    }  # fmt: skip
    with MDSWriter(out=out, columns=columns, size_limit=30_000, compression="gz") as writer:
        for n, length in enumerate(LENGTHS):
            writer.write(
                {
                    "n": n,
                    "tokens": np.full(length, n, np.uint16),
                    "length": length,
                    "text": "ü" * length,
                    "image": np.zeros((length, 2), np.uint8),
                }
            )
    return str(out)


def make(folder, *, budget=None, **options):
    default = {"limit": LIMIT, "column": "tokens"} if budget is None else budget
    return StreamingDataset(
        local=folder,
        batching_method="budget",
        batch_budget=default,
        **{"shuffle": True, "num_canonical_nodes": 2, **options},
    )


def read(dataset, **options):
    return [np.asarray(batch["n"]).tolist() for batch in dataset.batches(**options)]


def give(cost, _):
    return cost


def refuse(*_):
    raise NotImplementedError


failing_ints = partial(FailingInts, failing=range(5, 600, 97))


def plain(out, **columns):
    kinds = {"n": "int", **{name: spec for name, (spec, _) in columns.items()}}
    with MDSWriter(out=out, columns=kinds, size_limit=20_000) as writer:
        for n in range(len(LENGTHS)):
            writer.write(
                {"n": n, **{name: make_value(n) for name, (_, make_value) in columns.items()}}
            )
    return str(out)


@pytest.mark.parametrize(
    "measure",
    [
        {"column": "tokens"},
        {"column": "tokens", "measure": "length"},
        {"column": "text"},
        {"column": "image"},
        {"column": "length", "measure": "value"},
        {"column": "text", "measure": len},
        {"measure": lambda sample: sample["length"]},
    ],
)
def test_the_length_can_be_measured_in_many_ways(folder, measure):
    batches = read(make(folder, budget={"limit": LIMIT, **measure}))
    assert batches == read(make(folder))
    assert sorted(n for batch in batches for n in batch) == list(range(len(LENGTHS)))
    assert max(sum(LENGTHS[n] for n in batch) for batch in batches) <= LIMIT


def test_headers_have_the_lengths(tmp_path, monkeypatch):
    out = plain(
        tmp_path / "set", tokens=("ndarray:uint16", lambda n: np.zeros(LENGTHS[n], np.uint16))
    )
    monkeypatch.setattr("streamplug_budget.length_counter.LengthCounter.read", None)
    batches = read(make(out))
    assert max(sum(LENGTHS[n] for n in batch) for batch in batches) <= LIMIT
    in_bytes = BatchBudget(limit=3 * LIMIT, column="tokens", measure="bytes")
    batches = read(make(out, budget=in_bytes))
    assert max(sum(2 * LENGTHS[n] for n in batch) for batch in batches) <= 3 * LIMIT


def test_a_value_of_4_gib_has_no_cost_of_a_few_bytes(tmp_path, monkeypatch):
    out = plain(tmp_path / "set", data=("bytes", lambda n: bytes(1 + n % 7)))

    def with_large_file(stream, shard, column):
        sizes = read_header_sizes(stream, shard, column)
        sizes[5] += 1 << 32  # as a video in a folder may have
        return sizes

    monkeypatch.setattr("streamplug_ranges.value_sizes.read_header_sizes", with_large_file)
    budget = {"limit": 50, "column": "data", "measure": "bytes"}
    with pytest.raises(DataError, match=r"sample 5, .* length is 4294967295 or more; leave it out"):
        make(out, budget=budget)
    stream = Stream(local=out, select=np.arange(len(LENGTHS)) != 5)
    dataset = StreamingDataset(
        streams=[stream], batching_method="budget", batch_budget=budget, shuffle=True
    )
    batches = read(dataset)
    assert len({n for batch in batches for n in batch}) == len(LENGTHS) - 1


@pytest.mark.parametrize(("dtype", "width"), [("uint8", 8), ("float16", 300)])
def test_the_length_of_arrays_of_two_dimensions_is_that_of_the_first(tmp_path, dtype, width):
    shape = f"ndarray:{dtype}"  # sizes of these arrays are also those of vectors
    out = plain(tmp_path / "set", tokens=(shape, lambda n: np.zeros((1 + n % 5, width), dtype)))
    batches = read(make(out, budget={"limit": 50, "column": "tokens"}))
    costs = [sum(1 + n % 5 for n in batch) for batch in batches]
    assert max(costs) <= 50
    assert np.mean(costs) > 45


def test_many_samples_are_measured_in_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug_budget.length_counter.SAMPLES_PER_PROCESS", 200)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    out = plain(tmp_path / "set", text=("str", lambda n: "x" * LENGTHS[n]))
    batches = read(make(out, budget={"limit": LIMIT, "column": "text"}))
    assert max(sum(LENGTHS[n] for n in batch) for batch in batches) <= LIMIT


@pytest.mark.parametrize("state", [None, Lock()], ids=["pickled", "unpickled"])
def test_samples_are_measured_with_registered_plugins(tmp_path, monkeypatch, state):
    class Own(Gzip):
        """Pickled by value, as the class of a script or a notebook."""

        suffix, lock = "own", state

    monkeypatch.setattr("streamplug_budget.length_counter.SAMPLES_PER_PROCESS", 200)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    register_compression("own", Own)
    try:
        with MDSWriter(out=tmp_path, columns={"text": "str"}, compression="own") as writer:
            for length in LENGTHS:
                writer.write({"text": "x" * length})
        dataset = make(str(tmp_path), budget={"limit": LIMIT, "column": "text"})
        assert max(sum(map(len, batch["text"])) for batch in dataset.batches()) <= LIMIT
    finally:
        unregister("compression", "own")


def test_samples_are_measured_here_with_plugins_that_cannot_be_imported_elsewhere(
    tmp_path, monkeypatch
):
    class Own(Gzip):
        suffix = "own"

    Own.__module__, Own.__qualname__ = "only_here", "Own"
    module = ModuleType("only_here")
    module.Own = Own
    monkeypatch.setitem(sys.modules, "only_here", module)  # such as one loaded by its location
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    register_compression("own", Own)
    try:
        assert map_processes(abs, [-1, 2]) == [1, 2]
    finally:
        unregister("compression", "own")


def test_bins_are_counted_in_processes_and_kept(folder, monkeypatch, tmp_path):
    expected = read(make(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("streamplug_budget.bin_counts._SAMPLES_PER_PROCESS", 200)
    monkeypatch.setattr("streamplug_budget.part_planner._MIN_CACHED_SAMPLES", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert read(make(folder)) == expected
    monkeypatch.setattr("streamplug_budget.part_planner.count_bins_until", refuse)
    assert read(make(folder)) == expected  # now from the file
    with pytest.raises(NotImplementedError):
        read(make(folder, shuffle_seed=8))  # another order has other bins


class Slotted(NoShuffle):
    __slots__ = ("option",)

    @classmethod
    def from_spec(cls, argument):
        made = cls()
        made.option = argument
        return made


class Weighted(NoShuffle):
    @classmethod
    def from_spec(cls, argument):
        made = cls()
        made.weights = np.ones(5000)
        made.weights[2500] = argument  # which its repr does not show
        return made


@pytest.mark.parametrize("shuffle", [Slotted, Weighted])
def test_bins_are_those_of_the_options_of_a_shuffle(folder, monkeypatch, tmp_path, shuffle):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("streamplug_budget.part_planner._MIN_CACHED_SAMPLES", 100)
    register("shuffle", "own", shuffle)
    try:
        expected = read(make(folder, shuffle_algo="own:1"))
        monkeypatch.setattr("streamplug_budget.part_planner.count_bins_until", refuse)
        assert read(make(folder, shuffle_algo="own:1")) == expected
        with pytest.raises(NotImplementedError):
            read(make(folder, shuffle_algo="own:2"))
    finally:
        unregister("shuffle", "own")


def test_lengths_are_measured_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    budget = {"limit": LIMIT, "column": "text"}
    expected = read(make(folder, budget=budget))
    monkeypatch.setattr("streamplug_budget.length_counter.LengthCounter.lengths", None)
    assert read(make(folder, budget=budget)) == expected
    with pytest.raises(TypeError):
        make(folder, budget={**budget, "column": "image"})


def test_files_that_were_written_again_are_measured_again(tmp_path, monkeypatch):
    pytest.importorskip("streamplug_parquet")
    pa, pq = pytest.importorskip("pyarrow"), importlib.import_module("pyarrow.parquet")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    (tmp_path / "set").mkdir()
    sizes = []

    def lengths_of_batches(lengths):
        path = tmp_path / "set" / "a.parquet"
        table = pa.table({"tokens": [np.zeros(length, np.int32) for length in lengths]})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        sizes.append(path.stat().st_size)
        dataset = StreamingDataset(
            local=str(tmp_path / "set"),
            format="parquet",
            batching_method="budget",
            batch_budget={"limit": 8, "column": "tokens"},
        )
        return [[len(tokens) for tokens in batch["tokens"]] for batch in dataset.batches()]

    assert lengths_of_batches([3, 5, 8]) == [[3, 5], [8]]
    assert lengths_of_batches([8, 5, 3]) == [[8], [5, 3]]
    assert len(set(sizes)) == 1


def test_padded_batches_have_similar_samples(folder):
    budget = {"limit": LIMIT, "column": "tokens", "pad_to": "batch"}
    batches = read(make(folder, budget=budget, num_canonical_nodes=1))
    lengths = [[LENGTHS[n] for n in batch] for batch in batches]
    assert all(len(batch) * max(batch) <= LIMIT for batch in lengths)
    padded = sum(len(batch) * max(batch) for batch in lengths)
    assert sum(map(sum, lengths)) > 0.85 * padded


def test_the_batch_size_bounds_the_samples(folder):
    assert max(map(len, read(make(folder, batch_size=5)))) == 5
    assert max(map(len, read(make(folder)))) > 5


@pytest.mark.parametrize("options", [{"num_threads": 2}, {"batch_size": 5}])
def test_batches_can_be_asked_for_as_others(folder, options):
    dataset = make(folder, batch_size=options.get("batch_size"))
    assert read(dataset, **options) == read(make(folder, batch_size=options.get("batch_size")))


def test_a_batch_size_of_the_loop_alone_is_refused(folder):
    with pytest.raises(ConfigError, match=r"batch_size=5: .*batch_size= of the data set; give it"):
        read(make(folder), batch_size=5)


def test_samples_come_in_the_order_of_batches(folder):
    batches = read(make(folder))
    assert [sample["n"] for sample in make(folder)] == [n for batch in batches for n in batch]


def test_a_selection_and_streams(folder, tmp_path):
    odd = list(range(1, len(LENGTHS), 2))
    dataset = make(folder, select=odd)
    batches = read(dataset)
    assert sorted(n for batch in batches for n in batch) == odd
    assert max(sum(LENGTHS[n] for n in batch) for batch in batches) <= LIMIT
    other = plain(
        tmp_path / "set", tokens=("ndarray:uint16", lambda n: np.zeros(LENGTHS[-1 - n], np.uint16))
    )
    streams = [
        Stream(local=folder, proportion=0.3, select=odd),
        Stream(local=other, proportion=0.7),
    ]
    mixed = StreamingDataset(
        streams=streams,
        columns=["n", "tokens"],
        batching_method="budget",
        batch_budget={"limit": LIMIT, "column": "tokens"},
        shuffle=True,
        epoch_size=500,
    )
    tokens = [[len(value) for value in batch["tokens"]] for batch in mixed.batches()]
    assert sum(map(len, tokens)) == 500
    assert max(map(sum, tokens)) <= LIMIT


def test_a_view_has_lengths_of_its_own(folder, tmp_path):
    views = pytest.importorskip("streamplug_views")
    view = views.View.of(folder).where("length > 20").rename({"tokens": "ids"})
    view.commit(str(tmp_path / "view"), message="long ones")
    dataset = StreamingDataset(
        remote=str(tmp_path / "view"),
        batching_method="budget",
        batch_budget={"limit": LIMIT, "column": "ids"},
    )
    batches = read(dataset)
    assert sorted(n for batch in batches for n in batch) == [
        n for n, k in enumerate(LENGTHS) if k > 20
    ]
    assert max(sum(LENGTHS[n] for n in batch) for batch in batches) <= LIMIT


def test_a_state_is_resumed_on_other_ranks(folder):
    budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 8}
    batches = make(folder, budget=budget).batches()
    done = [next(batches)["n"].tolist() for _ in range(8)]
    dataset = make(folder, budget=budget)
    it = dataset.batches()
    for _ in range(8):
        next(it)
    state = json.loads(json.dumps(dataset.state_dict()))
    assert (state["batch_in_epoch"], unpack(state)["micro_batches"]) == (8, 8)
    rest = [batch["n"].tolist() for batch in batches]
    found = []
    for rank in range(4):
        dataset = make(folder, budget=budget, world=World(2, 2, rank=rank))
        dataset.load_state_dict(state)
        found.append(read(dataset))
    resumed = [batch for step in zip(*found) for batch in step]
    assert sorted(map(sorted, resumed)) == sorted(map(sorted, rest))
    assert sorted(map(sorted, resumed[:8])) == sorted(map(sorted, rest[:8]))
    assert len(done) + len(rest) == 8 * (-(-(len(done) + len(rest)) // 8))


def test_a_state_within_a_step_needs_as_many_ranks(folder):
    state = {**make(folder).state_dict(), "batch_in_epoch": 3, "micro_batches": 4}
    dataset = make(folder, world=World(1, 4))
    with pytest.raises(StateError, match="at batch 3, inside a step of 4 batches"):
        dataset.load_state_dict(state)


@pytest.mark.parametrize("batch", [4, 12])
def test_a_state_is_refused_on_ranks_that_do_not_divide_its_steps(folder, batch):
    state = {**make(folder).state_dict(), "batch_in_epoch": batch, "micro_batches": 4}
    with pytest.raises(StateError, match=r"steps of 4 batches, .* divided among 3 ranks"):
        make(folder, world=World(1, 3)).load_state_dict(state)


def test_a_state_of_other_lengths_is_refused(folder, tmp_path):
    state = make(folder).state_dict()
    with pytest.raises(StateError, match=r"batch_budget\.limit: saved 400, now 500"):
        make(folder, budget={"limit": 500, "column": "tokens"}).load_state_dict(state)
    with pytest.raises(StateError, match=r"batch_budget\.lengths: saved '\w+', now '\w+'"):
        make(
            folder, budget={"limit": LIMIT, "column": "n", "measure": lambda n: 1 + n % 9}
        ).load_state_dict(state)
    with pytest.raises(StateError, match="batch_budget"):
        StreamingDataset(local=folder, batch_size=1, shuffle=True).load_state_dict(state)
    mosaic = {"epoch": 0, "sample_in_epoch": 8, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    with pytest.raises(StateError, match="batch_budget"):
        make(folder).load_state_dict(mosaic)
    with pytest.raises(StateError, match="use state_dict"):
        make(folder).state_dict(num_samples=0)


def test_explain_and_where(folder):
    dataset = make(folder, world=World(1, 2))
    uses = dataset.explain(step=2)
    batches = [read(make(folder, world=World(1, 2, rank=rank)))[2] for rank in (0, 1)]
    assert [[use.sample for use in uses if use.rank == rank] for rank in (0, 1)] == batches
    [use] = dataset.where(batches[1][0])
    assert (use.step, use.rank, use.place) == (2, 1, 0)


def test_it_is_sent_to_other_processes(folder):
    dataset = make(folder)
    assert read(pickle.loads(pickle.dumps(dataset))) == read(dataset)


def test_epochs_and_seeds_differ(folder):
    dataset = make(folder)
    first, second = read(dataset), read(dataset)
    assert first != second
    assert read(make(folder, shuffle_seed=1)) != first


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (None, "batch_budget=None: expected a BatchBudget"),
        (65536, "batch_budget=65536: expected a BatchBudget"),
        ({"limit": 0, "column": "tokens"}, "limit=0: must be at least 1"),
        ({"limit": 1 << 63, "column": "tokens"}, f"limit={1 << 63}: .* at most {1 << 62}"),
        ({"limit": "many", "column": "tokens"}, "limit='many': expected a count"),
        ({"limit": 9}, "column=None: name the column whose length"),
        (
            {"limit": 9, "column": "tokens", "measure": "size"},
            "measure='size': choose one of length, bytes",
        ),
        (
            {"limit": 9, "column": "tokens", "pad_to": "max"},
            "pad_to='max': choose one of none, batch",
        ),
        ({"limit": 9, "column": "tokens", "quadratic": -1}, "quadratic=-1: must be a number"),
        ({"limit": 9, "column": "tokens", "quadratic": True}, "quadratic=True: must be a number"),
        ({"limit": 9, "column": 3}, "column=3: must be the name of a column"),
        ({"limit": 9, "column": "tokens", "max_length": 0}, "max_length=0"),
        ({"limit": 9, "column": "tokens", "micro_batches": 0}, "micro_batches=0"),
        ({"limit": 9, "colum": "tokens"}, "column"),
        ({"limit": 9, "column": "token"}, "Did you mean 'tokens'"),
        (
            {"limit": 100, "column": "tokens"},
            r"sample \d+ of length 200 costs 200, more than limit=100; .* leave such samples out by select=",
        ),
        (
            {"limit": 9, "column": "text", "measure": "bytes"},
            "does not store the sizes of column 'text'",
        ),
    ],
)
def test_a_budget_that_cannot_be_used_is_refused(folder, budget, message):
    with pytest.raises((ConfigError, TypeError), match=message):
        StreamingDataset(local=folder, batching_method="budget", batch_budget=budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"partition_algo": "relaxed"},
            "batching_method='budget' and partition_algo='relaxed': needs 'budget' and 'elastic'",
        ),
        ({"partition_algo": "budget"}, "partition_algo='budget': give it as batching_method="),
        ({"batching_method": "random"}, "batch_budget= with batching_method='random'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, message):
    budget = {"batching_method": "budget", "batch_budget": {"limit": LIMIT, "column": "tokens"}}
    with pytest.raises(ConfigError, match=message):
        StreamingDataset(local=folder, **{**budget, **options})


def test_a_missing_distribution_is_named(folder, monkeypatch):
    with isolated_plugins([]), pytest.raises(PluginError, match="pip install streamplug-budget"):
        make(folder)
    suggestion = r"Did you mean 'budget'\? \(pip install streamplug-budget\)"
    with isolated_plugins([]), pytest.raises(ConfigError, match=suggestion):
        StreamingDataset(local=folder, batching_method="budgte")


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda n: 1 if n != 7 else 1 / 0, "sample 7, column 'n': .* ZeroDivisionError"),
        (lambda n: n - 5, "sample 0, column 'n': .* -5 is no whole number"),
        (lambda n: n / 2, r"sample 1, column 'n': .* 0.5 is no whole number"),
        ("length", "sample 0, column 'n': .*measure=length: TypeError.*; .* measure='value'"),
    ],
)
def test_a_length_that_is_none_is_an_error_that_names_the_sample(folder, measure, message):
    with pytest.raises(DataError, match=message):
        make(folder, budget={"limit": LIMIT, "column": "n", "measure": measure})


def test_the_sample_of_an_error_is_that_of_the_data_set_where_some_are_selected(folder):
    budget = {"limit": LIMIT, "column": "n", "measure": lambda n: 1 if n != 7 else -1}
    text = r"/index.json: sample 7 \(number 1 of the selected ones\), column 'n': "
    with pytest.raises(DataError, match=text):
        make(folder, budget=budget, select=[3, 7])


@pytest.mark.parametrize("measure", [{"measure": lambda sample: sample["n"]}, {"column": "bag"}])
def test_unsafe_columns_are_measured_only_if_they_are_allowed(tmp_path, measure):
    with MDSWriter(out=tmp_path, columns={"n": "int", "bag": "pkl"}) as writer:
        for n in range(1, 4):
            writer.write({"n": n, "bag": list(range(n))})
    options = {"budget": {"limit": 3, **measure}, "columns": ["n"], "shuffle": False}
    with pytest.raises(UnsafeTypeError, match=r"batch_budget reads column 'bag'"):
        make(str(tmp_path), **options)
    allowed = make(str(tmp_path), **options, allow_unsafe_types=True)
    assert sorted(map(sorted, read(allowed))) == [[1, 2], [3]]


def test_commands_measure_unsafe_columns_only_if_the_config_allows_them(tmp_path):
    pytest.importorskip("streamplug_simulate")
    with MDSWriter(out=tmp_path / "set", columns={"n": "int", "bag": "pkl"}) as writer:
        writer.write({"n": 1, "bag": [1]})
    section = {
        "local": f"{tmp_path}/set",
        "batching_method": "budget",
        "batch_budget": {"limit": 3, "column": "bag"},
        "batch_size": 3,
    }
    path = tmp_path / "run.json"
    for allowed in (False, True):
        path.write_text(json.dumps({"dataset": {**section, "allow_unsafe_types": allowed}}))
        for command in (["explain", str(path), "--step", "0"], ["simulate", str(path)]):
            done = CliRunner().invoke(main, command)
            assert ("column 'bag' contains an unsafe type" in done.output) != allowed
            assert done.exit_code == (0 if allowed else 2), done.output


def test_the_value_of_a_column_of_arrays_is_no_length(folder):
    with pytest.raises(DataError, match=r"sample 0, column 'tokens': .*; .* measure='length'"):
        make(folder, budget={"limit": LIMIT, "column": "tokens", "measure": "value"})


def test_a_transform_may_cut_long_samples(folder):
    budget = {"limit": 100, "column": "tokens", "max_length": 60}
    batches = read(make(folder, budget=budget))
    assert max(sum(min(LENGTHS[n], 60) for n in batch) for batch in batches) <= 100


def test_a_config_file_has_a_budget(folder, tmp_path):
    config = {
        "local": folder,
        "shuffle": True,
        "num_canonical_nodes": 2,
        "batching_method": "budget",
        "batch_budget": {"limit": "0.4k", "column": "tokens"},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert read(StreamingDataset.from_config(path)) == read(make(folder))


def test_a_config_takes_numbers_of_a_budget_from_the_environment(folder, monkeypatch):
    numbers = {"micro_batches": 4, "max_length": 60, "quadratic": 0.001}
    config = {"local": folder, "shuffle": True, "batching_method": "budget"}
    budget = {"limit": "0.4k", "column": "tokens"}
    for name, number in numbers.items():
        monkeypatch.setenv(name.upper(), str(number))
    texts = {name: f"${{env:{name.upper()}}}" for name in numbers}
    dataset = StreamingDataset.from_config({**config, "batch_budget": {**budget, **texts}})
    plain = StreamingDataset.from_config({**config, "batch_budget": {**budget, **numbers}})
    assert dataset.state_dict() == plain.state_dict()
    monkeypatch.setenv("MICRO_BATCHES", "four")
    with pytest.raises(ConfigError, match="micro_batches='four': must be a whole number"):
        StreamingDataset.from_config({**config, "batch_budget": {**budget, **texts}})


def test_samples_that_cannot_be_read_are_substituted_within_the_budget(folder):
    budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 8}

    def global_batches(world):
        ranks = []
        for rank in range(world.ranks):
            dataset = make(
                folder,
                budget=budget,
                world=World(world.nodes, world.ranks_per_node, rank=rank),
                on_error="substitute",
                decoders={"n": failing_ints},
            )
            ranks.append(
                [[len(tokens) for tokens in batch["tokens"]] for batch in dataset.batches()]
            )
        steps = [batch for step in zip(*ranks) for batch in step]
        return [sorted(map(sorted, steps[i : i + 8])) for i in range(0, len(steps), 8)]

    expected = global_batches(World())
    assert global_batches(World(2, 2)) == expected
    assert max(sum(batch) for step in expected for batch in step) <= LIMIT
    dataset = make(
        folder, budget=budget, on_error="substitute", max_errors=2, decoders={"n": failing_ints}
    )
    with pytest.raises(TooManyBadSamplesError):
        read(dataset)


class TestLoader:
    """Batches of limited cost in a loader of torch."""

    @pytest.fixture(autouse=True)
    def _needs_torch(self):
        pytest.importorskip("torch")

    @pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
    @pytest.mark.parametrize(
        "workers",
        [{}, {"num_workers": 2}, *([{"num_workers": 1, "context": "spawn"}] if SOAK else [])],
    )
    def test_batches_are_those_of_the_data_set(self, folder, workers):
        from streamplug import StreamingDataLoader

        context = workers.get("context")
        options = {"num_workers": workers.get("num_workers", 0), "multiprocessing_context": context}
        expected = read(make(folder))
        loader = StreamingDataLoader(make(folder), **options)
        assert len(loader) == len(expected)
        assert [batch["n"].tolist() for batch in loader] == expected
        transformed = StreamingDataLoader(
            make(folder), transform=_keep_number, drop_last=True, **options
        )
        batches = iter(transformed)
        found = [next(batches) for _ in range(5)]
        assert [batch["n"].tolist() for batch in found] == expected[:5]
        state = transformed.state_dict()
        del batches
        loader = StreamingDataLoader(make(folder), **options)
        loader.load_state_dict(state)
        assert [batch["n"].tolist() for batch in loader] == expected[5:]

    def test_random_numbers_do_not_depend_on_the_ranks(self, folder):
        from streamplug import StreamingDataLoader

        budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 4}
        drawn = {}
        for ranks in (1, 4):
            for rank in range(ranks):
                dataset = make(folder, budget=budget, world=World(1, ranks, rank=rank))
                for batch in StreamingDataLoader(dataset, transform=_draw):
                    pairs = zip(batch["n"].tolist(), batch["random"].tolist())
                    drawn.setdefault(ranks, set()).update(pairs)
        assert drawn[1] == drawn[4]


def _keep_number(sample):
    return {"n": sample["n"]}


def _draw(sample, rng):
    return {"n": sample["n"], "random": rng.random()}


def test_lengths_on_a_read_only_disk_are_an_error_of_the_cache(folder, tmp_path, monkeypatch):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read(make(folder))  # a temporary directory is used


class TestResize:
    """Changes of the world while batches of limited cost are read."""

    budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 8}  # noqa: RUF012

    def worlds(self, ranks):
        return [World(ranks_per_node=ranks, rank=rank) for rank in range(ranks)]

    def test_global_batches_stay_as_they_were(self, folder):
        undisturbed = [sorted(batch) for batch in read(make(folder, budget=self.budget))]
        expected = [sorted(undisturbed[i : i + 8]) for i in range(0, len(undisturbed), 8)]
        sets = [make(folder, budget=self.budget, world=world) for world in self.worlds(4)]
        loops = [dataset.batches() for dataset in sets]
        found = [[sorted(next(loop)["n"].tolist()) for _ in range(4) for loop in loops][:16]]
        found = [sorted(found[0][:8]), sorted(found[0][8:])]
        for dataset, world in zip(sets, self.worlds(2)):
            dataset.resize(world)
        for _ in range(2, len(expected)):
            step = [sorted(next(loop)["n"].tolist()) for _ in range(4) for loop in loops[:2]]
            found.append(sorted(step))
        assert found == expected
        assert [next(loop, None) for loop in loops[:2]] == [None, None]

    def test_in_the_middle_of_a_global_batch_it_is_refused(self, folder):
        dataset = make(folder, budget=self.budget, world=World(1, 4))
        next(dataset.batches())
        with pytest.raises(ConfigError, match="in the middle of a global batch of 8 batches"):
            dataset.resize(World(1, 2))
        with pytest.raises(ConfigError, match="global batch of 8 batches, which stays the same"):
            dataset.resize(World(1, 3))

    @pytest.mark.parametrize("with_loader", [False, True])
    def test_a_loaded_position_is_kept(self, folder, with_loader):
        """A state of 16 batches, loaded before or after the world changes, resumes with the next."""
        whole = read(make(folder, budget=self.budget))
        state = make(folder, budget=self.budget).session.state_at(0, 16)

        def resume(ranks):
            dataset = make(folder, budget=self.budget, world=World(1, ranks))
            if with_loader:
                pytest.importorskip("torch")
                from streamplug import StreamingDataLoader

                loader = StreamingDataLoader(dataset)
                loader.load_state_dict(state)
                return loader, loader
            dataset.load_state_dict(state)
            return dataset, dataset.batches()

        for before, after in [(1, 4), (4, 2), (2, 8)]:
            resumed, batches = resume(before)
            for ranks in (after, before, after):
                resumed.resize(World(1, ranks))
                assert resumed.state_dict()["batch_in_epoch"] == 16
            with pytest.raises(ConfigError, match="rewind=1: no batch was read since"):
                resumed.resize(World(1, 1), rewind=1)
            assert [batch["n"].tolist() for batch in batches] == whole[16::after]

    def test_a_loaded_position_in_the_middle_of_a_global_batch_is_refused(self, folder):
        dataset = make(folder, budget=self.budget, world=World(1, 4))
        state = dataset.session.state_at(0, 5)
        dataset.load_state_dict(state)
        with pytest.raises(ConfigError, match="in the middle of a global batch of 8 batches"):
            dataset.resize(World(1, 2))
        assert dataset.state_dict() == state

    @pytest.mark.parametrize("transform", [None, _keep_number])
    def test_loader_workers_follow(self, folder, transform):
        pytest.importorskip("torch")
        from streamplug import StreamingDataLoader

        whole = read(make(folder, budget=self.budget))
        dataset = make(folder, budget=self.budget, world=World(1, 4, rank=1))
        loader = StreamingDataLoader(dataset, num_workers=1, transform=transform)
        batches = iter(loader)
        found = [next(batches)["n"].tolist() for _ in range(2)]
        loader.resize(World())
        found += [batch["n"].tolist() for batch in batches]
        assert found == [whole[1], whole[5], *whole[8:]]


def test_a_script_without_a_guard_of_its_main_module_is_measured(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os, streamplug_budget.length_counter as counter, streamplug_budget.bin_counts as bins
from streamplug.dataset import StreamingDataset
counter.SAMPLES_PER_PROCESS = bins._SAMPLES_PER_PROCESS = 200
os.cpu_count = lambda: 2
def measure(sample):
    return sample["length"]
budget = dict(limit={LIMIT}, measure=measure)
dataset = StreamingDataset(
    local={folder!r}, shuffle=True, num_canonical_nodes=2, batching_method="budget", batch_budget=budget
)
print([batch["n"].tolist() for batch in dataset.batches()])
"""
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == read(make(folder))


def test_an_error_in_another_process_is_raised_here(folder, monkeypatch):
    monkeypatch.setattr("streamplug_budget.length_counter.SAMPLES_PER_PROCESS", 200)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    budget = {"limit": LIMIT, "column": "n", "measure": lambda n: 1 if n != 450 else 1 / 0}
    with pytest.raises(DataError, match="sample 450, column 'n'"):
        make(folder, budget=budget)
    budget = {"limit": LIMIT, "column": "n", "measure": lambda n: os._exit(3)}
    with pytest.raises(StreamplugError, match="ended with 3"):
        make(folder, budget=budget)


def test_lengths_are_those_of_the_function_and_the_decoders(folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "measuring.py"
    module.write_text("def measure(sample):\n    return sample['length']\n")
    measuring = importlib.import_module("measuring")
    one = read(make(folder, budget={"limit": LIMIT, "measure": measuring.measure}))
    assert one == read(make(folder))
    module.write_text("def measure(sample):\n    return min(sample['length'], 5)  # changed\n")
    importlib.invalidate_caches()
    measuring = importlib.reload(measuring)
    assert (
        max(map(len, read(make(folder, budget={"limit": LIMIT, "measure": measuring.measure}))))
        > 60
    )
    budget = {"limit": 3000, "column": "n", "measure": "value"}
    plain = read(make(folder, budget=budget))
    assert read(make(folder, budget=budget, decoders={"n": partial(Halved, failing=())})) != plain


def test_lengths_are_of_decoded_arrays(tmp_path):
    set_ = plain(tmp_path, tokens=("ndarray:uint16", lambda n: np.zeros(50, np.uint16)))
    budget = {"limit": 100, "column": "tokens"}
    batches = read(make(set_, budget=budget, decoders={"tokens": FirstTokens.of}))
    assert set(map(len, batches)) == {20}


def test_lengths_do_not_depend_on_decoders_of_other_columns(folder, monkeypatch):
    lock = Lock()  # which cannot be pickled

    def decoder(encoding):
        with lock:
            return encoding

    expected = read(make(folder))
    monkeypatch.setattr("streamplug_budget.length_counter.LengthCounter.lengths", refuse)  # cached
    assert read(make(folder, decoders={"image": decoder})) == expected
    with pytest.raises(ConfigError, match=r"captures a value that cannot be pickled"):
        make(folder, decoders={"tokens": decoder})


class FirstTokens(NDArrayEncoding):
    """Decodes the first five items of each array."""

    @classmethod
    def of(cls, encoding):
        return cls(encoding.item.name)

    def decode(self, data):
        return super().decode(data)[:5]


class Halved(FailingInts):
    """Decodes half of each int."""

    def decode(self, data):
        return super().decode(data) // 2

    def decode_batch(self, *batch):
        return super().decode_batch(*batch) // 2


@pytest.mark.parametrize(("limit", "most"), [(100, 60), (10, 3), (1000, 300), (4096, 1500), (5, 9)])
def test_a_batch_size_is_reached_where_samples_cost_little(tmp_path, limit, most):
    out = tmp_path / "set"
    with MDSWriter(out=out, columns={"n": "int"}) as writer:
        writer.write_batch({"n": np.arange(5000)})
    budget = {"limit": limit, "measure": lambda sample: 0}
    batches = read(make(str(out), budget=budget, batch_size=most))
    assert 0.8 * min(limit, most) <= max(map(len, batches)) <= min(limit, most)


@pytest.mark.parametrize(
    ("limit", "most"), [(LIMIT, 10**9), (LIMIT, 2**31 - 1), (2 * 10**9, 10**9), (10**18, 8)]
)
def test_a_batch_size_or_a_limit_may_be_too_large_to_be_reached(folder, limit, most):
    budget = {"limit": limit, "column": "tokens"}
    batches = read(make(folder, budget=budget, batch_size=most))
    assert sorted(n for batch in batches for n in batch) == list(range(len(LENGTHS)))
    costs = [sum(LENGTHS[n] for n in batch) for batch in batches]
    assert max(costs) <= limit
    assert max(map(len, batches)) <= most
    least = -(-sum(LENGTHS) // limit) if most > len(LENGTHS) else len(LENGTHS) / most
    assert len(batches) <= 1.1 * least + 1


def test_batches_of_one_sample_are_repeated_to_complete_the_last_step(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as writer:
        writer.write_batch({"n": np.arange(10)})
    for cost, options, repeated in (
        (600, {}, 2),
        (1, {"batch_size": 1}, 2),
        (450, {}, 0),  # 5 batches of 2 samples
    ):
        budget = {"limit": 1000, "measure": partial(give, cost), "micro_batches": 4}
        batches = read(make(str(tmp_path / "set"), budget=budget, **options))
        counts = Counter(n for batch in batches for n in batch)
        assert (len(batches) % 4, len(counts), counts.total()) == (0, 10, 10 + repeated)


def test_options_of_numpy_types_are_json(folder):
    budget = BatchBudget(
        limit=np.int64(400), column="tokens", max_length=np.int64(200), micro_batches=np.int8(2)
    )
    json.dumps(make(folder, budget=budget).state_dict())


def test_a_state_within_the_padding_is_loaded(folder):
    budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 64}
    dataset = make(folder, budget=budget, select=range(10))
    batches = dataset.batches()
    for _ in range(40):
        next(batches)
    resumed = make(folder, budget=budget, select=range(10))
    resumed.load_state_dict(dataset.state_dict())
    assert read(resumed) == [batch["n"].tolist() for batch in batches]


def test_a_data_set_that_iterates_in_its_own_way_is_refused_by_loaders(folder):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader

    class Buffered(StreamingDataset):
        def __iter__(self):
            yield from list(super().__iter__())

    dataset = Buffered(
        local=folder, batching_method="budget", batch_budget={"limit": LIMIT, "column": "tokens"}
    )
    with pytest.raises(ConfigError, match="Buffered has an __iter__ of its own"):
        StreamingDataLoader(dataset)


def test_rewinding_counts_global_batches(folder):
    budget = {"limit": LIMIT, "column": "tokens", "micro_batches": 8}
    dataset = make(folder, budget=budget, world=World(1, 4))
    batches = dataset.batches()
    first = [next(batches)["n"].tolist() for _ in range(4)]
    dataset.resize(World(1, 4), rewind=1)
    assert [next(batches)["n"].tolist() for _ in range(2)] == first[2:]


def test_the_length_of_a_data_set_is_its_part_of_the_samples(folder):
    assert len(make(folder, world=World(1, 4))) == len(LENGTHS) // 4


def test_a_state_of_another_number_of_micro_batches_is_refused(folder):
    budget = {"limit": LIMIT, "column": "tokens"}
    state = make(folder, budget={**budget, "micro_batches": 8}).state_dict()
    with pytest.raises(StateError, match=r"saved 8, now 4 \(batches of a global batch"):
        make(folder, budget={**budget, "micro_batches": 4}).load_state_dict(state)
