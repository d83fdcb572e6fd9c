"""Views read as plain sets with the same rows and columns, in an order that does not depend on the world."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from streamplug_testing.equality import same
from streamplug_tools import Columns, Output
from streamplug_tools.options import JobProgress
from streamplug_tools.transforms import convert
from streamplug_views import View, compact, log
from streamplug_views.workspace import ViewWorkspace

from streamplug import Encoding, MDSWriter, Stream, StreamingDataset, World
from streamplug.errors import ConfigError, DataError, OutputExistsError, StateError

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
COUNT = 120
FORMATS = ["mds", "parquet", "jsonl", "json", "csv", "webdataset"]
SIZE_LIMITS = {"parquet": 4096, "jsonl": 600, "json": 600, "csv": 600, "webdataset": 30_000}
PLUGINS = {
    "parquet": "parquet",
    "jsonl": "text",
    "json": "text",
    "csv": "text",
    "webdataset": "webdataset",
}
COLUMNS = {"id": "str", "n": "int", "label": "str"}


def base_row(n):
    return {"id": f"k{n:03}", "n": n, "label": "ab"[n % 2]}


def write(path, rows, columns, **options):
    with MDSWriter(out=path, columns=columns, **options) as out:
        for row in rows:
            out.write(row)
    return str(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("views")
    rows = [base_row(n) for n in range(COUNT)]
    write(root / "mds", rows, COLUMNS, max_samples_per_shard=17)
    for format_ in FORMATS[1:]:
        if find_spec(f"streamplug_{PLUGINS[format_]}"):
            output = Output(
                root / format_, format=format_, size_limit=SIZE_LIMITS[format_], processes=0
            )
            convert(root / "mds", output)
    captions = [{"id": f"k{n:03}", "caption": f"caption {n}"} for n in range(COUNT)]
    write(root / "captions", captions, {"id": "str", "caption": "str"}, max_samples_per_shard=31)
    mixed = [captions[n] for n in np.random.default_rng(0).permutation(COUNT)]
    write(root / "mixed", mixed, {"id": "str", "caption": "str"}, max_samples_per_shard=31)
    return root


class Upper(Encoding):
    def encode(self, value):
        raise NotImplementedError

    def decode(self, data):
        return bytes(data).decode().upper()


class Model:
    """A view and the rows that it must have."""

    def __init__(self, view, rows):
        self.view, self.rows = view, rows


OPERATIONS = [
    "where",
    "select",
    "exclude",
    "keys",
    "sample",
    "add",
    "join",
    "rename",
    "drop",
    "concat",
]


def apply(model, operation, data, root):
    """Apply a random operation to a view, and to the rows that it must have."""
    view, rows = model.view, model.rows
    names = list(rows[0]) if rows else []
    if operation == "where" and "n" in names:
        share = data.draw(st.integers(0, 4))
        return Model(
            view.where(f"n % 5 >= {share}"), [row for row in rows if row["n"] % 5 >= share]
        )
    if operation in ("select", "exclude"):
        mask = np.array(
            data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool
        )
        changed = getattr(view, operation)(mask)
        return Model(
            changed, [row for row, take in zip(rows, mask) if take == (operation == "select")]
        )
    if operation == "keys" and "id" in names:
        keys = data.draw(st.lists(st.sampled_from([f"k{n:03}" for n in range(COUNT)]), max_size=20))
        return Model(view.exclude(keys=keys, on="id"), [r for r in rows if r["id"] not in keys])
    if operation == "add" and "caption" not in names and len(rows) == COUNT and "n" in names:
        return Model(
            view.add(root / "captions", columns=["caption"]),
            [{**row, "caption": f"caption {n}"} for n, row in enumerate(rows)],
        )
    if operation == "join" and "caption" not in names and "id" in names:
        return Model(
            view.add(root / "mixed", on="id"),
            [{**row, "caption": f"caption {int(row['id'][1:])}"} for row in rows],
        )
    if operation == "rename" and "label" in names:
        renamed = [{"kind" if k == "label" else k: v for k, v in row.items()} for row in rows]
        return Model(view.rename({"label": "kind"}), renamed)
    if operation == "drop" and "label" in names and len(names) > 1:
        return Model(
            view.drop(["label"]), [{k: v for k, v in r.items() if k != "label"} for r in rows]
        )
    if operation == "concat" and sorted(names) == sorted(COLUMNS):
        return Model(view.concat(root / "mds"), [*rows, *(base_row(n) for n in range(COUNT))])
    return model


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=15 if SOAK else 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(OPERATIONS), max_size=5), st.booleans(), st.data())
def test_random_views_read_as_plain_sets(root, tmp_path_factory, format_, operations, again, data):
    if not (root / format_).exists():
        pytest.skip(f"streamplug-{PLUGINS[format_]} is not installed")
    folder = tmp_path_factory.mktemp("view")
    view = View.of(root / format_)
    if format_ == "webdataset":
        view = view.drop(["__key__"])
    model = Model(view, [base_row(n) for n in range(COUNT)])
    for operation in operations:
        model = apply(model, operation, data, root)
        if again:  # a view of a committed view, at another place
            place = folder / f"step-{len(list(folder.iterdir()))}"
            model.view.commit(place)
            model = Model(View.of(place), model.rows)
    view, rows = model.view, model.rows
    assert len(view) == len(rows)
    commit = view.commit(folder / "view")
    assert (commit.version, commit.samples) == (1, len(rows))
    dataset = StreamingDataset(remote=str(folder / "view"))
    assert dataset.size == len(rows)
    if not rows:
        return
    names = set(rows[0])
    assert set(view.columns) >= names
    assert plain(list(dataset), names) == rows
    assert plain([dataset[n] for n in range(len(rows))], names) == rows
    assert plain(dataset[::-1], names) == rows[::-1]
    for batch in dataset.batches(7):
        assert set(batch) >= names
    numbers = [n for batch in dataset.batches(7) for n in batch["n"]] if "n" in names else []
    assert [int(n) for n in numbers[: len(rows)]] == [row["n"] for row in rows if numbers]
    one = next(iter(names))
    only = StreamingDataset(remote=str(folder / "view"), columns=[one])
    assert [dict(row) for row in only] == [{one: row[one]} for row in rows]
    picked = StreamingDataset(remote=str(folder / "view"), select=range(0, len(rows), 1))
    assert plain(list(picked), names) == rows
    check_order(folder / "view", len(rows), names, data)


def make_folder(root):
    folder = root / "tree"
    for n in range(40):
        (folder / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        (folder / "ab"[n % 2] / f"{n:02}.bin").write_bytes(bytes([n]) * n)
    return folder


def make_litdata(root):
    golden = Path(__file__).parents[2] / "streamplug-litdata/tests/golden/0.2.76/items"
    return shutil.copytree(golden, root / "litdata")


def make_delta(root):
    deltalake = pytest.importorskip("deltalake")
    for first in (0, 20):
        rows = pa.table({"id": list(range(first, first + 20)), "p": ["x", None] * 10})
        deltalake.write_deltalake(root / "delta", rows, mode="append", partition_by=["p"])
    deltalake.DeltaTable(root / "delta").delete("id % 7 = 3")
    return root / "delta"


BASES = {"folder:classes": make_folder, "litdata": make_litdata, "delta": make_delta}


@pytest.fixture(scope="module", params=BASES)
def other(request, tmp_path_factory):
    """Return location, format and samples of a set of a format that is not written here."""
    distribution = request.param.partition(":")[0]
    pytest.importorskip(f"streamplug_{distribution}")
    location = BASES[request.param](tmp_path_factory.mktemp("base"))
    samples = [dict(row) for row in StreamingDataset(remote=str(location), format=request.param)]
    return location, request.param, samples


@settings(max_examples=8 if SOAK else 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_views_of_sets_of_other_formats(other, tmp_path_factory, data):
    location, format_, rows = other
    folder = tmp_path_factory.mktemp("view")
    view = View.of(location, format=format_)
    for number, operation in enumerate(
        data.draw(st.lists(st.sampled_from(["select", "exclude", "concat", "drop"]), max_size=4))
    ):
        if operation == "concat" and len(rows[:1] and rows[0]) == len(other[2][0]):
            view = view.concat(location, format=format_)
            rows = [*rows, *other[2]]
        elif operation == "drop" and rows and len(rows[0]) > 1:
            name = min(rows[0])
            view = view.drop([name])
            rows = [{k: v for k, v in row.items() if k != name} for row in rows]
        elif operation in ("select", "exclude"):
            mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
            view = getattr(view, operation)(np.array(mask, bool))
            rows = [row for row, take in zip(rows, mask) if take == (operation == "select")]
        if data.draw(st.booleans()):
            view.commit(folder / f"step-{number}")
            view = View.of(folder / f"step-{number}")
    view.commit(folder / "view")
    dataset = StreamingDataset(remote=str(folder / "view"))
    assert dataset.size == len(rows)
    assert same([dict(row) for row in dataset[::-1]], rows[::-1])
    if rows:
        assert same([dict(row) for row in dataset], rows)
        check_order(folder / "view", len(rows), set(rows[0]), data)
    else:
        with pytest.raises(ConfigError, match="no samples"):
            next(iter(dataset))


def plain(samples, names):
    return [{name: sample[name] for name in sample if name in names} for sample in samples]


def steps_of(view, world, state=None, **options):
    steps: dict[int, list[str]] = {}
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, rank=rank)
        dataset = StreamingDataset(
            remote=str(view), batch_size=64 // world.ranks, world=place, shuffle=True,
            shuffle_algo="global", num_canonical_nodes=2, **options,
        )  # fmt: skip
        if state is not None:
            dataset.load_state_dict(state)
        for step, batch in enumerate(dataset.batches()):
            first = next(iter(batch.values()))
            steps.setdefault(step, []).extend(map(str, first))
    return [sorted(step) for step in steps.values()]


def check_order(view, size, names, data):
    single = steps_of(view, World())
    shape = data.draw(st.sampled_from([(1, 2), (2, 2), (1, 8), (4, 16)]))
    assert steps_of(view, World(*shape)) == single
    stopped = StreamingDataset(
        remote=str(view), batch_size=64, shuffle=True, shuffle_algo="global", num_canonical_nodes=2
    )
    step = data.draw(st.integers(0, len(single) - 1))
    batches = stopped.batches()
    for _ in range(step):
        next(batches)
    state = stopped.state_dict()
    batches.close()
    assert steps_of(view, World(*shape), state) == single[step:]


def test_adding_by_key_says_what_is_missing(root, tmp_path):
    few = [{"id": f"k{n:03}", "extra": n} for n in range(0, COUNT, 2)]
    write(tmp_path / "few", few, {"id": "str", "extra": "int"})
    view = View.of(root / "mds")
    with pytest.raises(
        ConfigError, match=r"sample 1 of the view has the key 'k001', which it does not have"
    ):
        len(view.add(tmp_path / "few", on="id"))
    dropped = view.add(tmp_path / "few", on="id", missing="drop")
    dropped.commit(tmp_path / "dropped")
    rows = list(StreamingDataset(remote=str(tmp_path / "dropped")))
    assert [row["n"] for row in rows] == [row["extra"] for row in rows] == list(range(0, COUNT, 2))
    null = view.add(tmp_path / "few", on="id", missing="null")
    null.commit(tmp_path / "null")
    dataset = StreamingDataset(remote=str(tmp_path / "null"))
    expected = [None if n % 2 else n for n in range(COUNT)]
    assert [row["extra"] for row in dataset] == expected
    assert [dataset[n]["extra"] for n in range(COUNT)] == expected
    batches = list(dataset.batches(8, num_threads=1))
    assert [value for batch in batches for value in batch["extra"]] == expected
    only = StreamingDataset(remote=str(tmp_path / "null"), columns=["extra"])
    assert [row["extra"] for row in only[[1, 3]]] == [None, None]
    write(tmp_path / "twice", [*few, few[3]], {"id": "str", "extra": "int"})
    with pytest.raises(ConfigError, match="both have the key 'k006'"):
        len(view.add(tmp_path / "twice", on="id"))


def test_expressions_calculate_with_numbers_of_python_also_beside_none(root, tmp_path):
    scores = [{"id": f"k{n:03}", "score": 2 * n} for n in range(COUNT) if n != 7]
    write(tmp_path / "scores", scores, {"id": "str", "score": "uint8"})
    view = View.of(root / "mds").add(tmp_path / "scores", on="id", missing="null")
    assert len(view.where("score is not None and score * 2 >= 400")) == COUNT - 100


def test_batches_of_concatenated_rows_without_none_are_arrays(tmp_path):
    for name, numbers in (("a", range(20)), ("b", range(20, 40))):
        write(tmp_path / name, map(base_row, numbers), COLUMNS)
    extra = [{"id": f"k{n:03}", "extra": n} for n in range(40) if n not in (11, 27)]
    write(tmp_path / "extra", extra, {"id": "str", "extra": "int"})
    view = View.of(tmp_path / "a").concat(tmp_path / "b")
    view.add(tmp_path / "extra", on="id", missing="null").commit(tmp_path / "view")
    dataset = StreamingDataset(remote=str(tmp_path / "view"), shuffle=True, batch_size=4)
    for batch in dataset.batches():
        extra = list(batch["extra"])
        assert extra == [None if n in (11, 27) else n for n in batch["n"]]
        assert type(batch["extra"]) is (list if None in extra else np.ndarray)


@pytest.mark.parametrize(
    ("on", "keys", "words"),
    [
        (
            "n",
            ["1", "2"],
            "2 keys on n: the keys are text, those of the view numbers, so no sample",
        ),
        ("n", [np.datetime64(1, "D"), None], "the keys are times, those of the view numbers"),
        ("n", [np.timedelta64(1, "s"), b"1"], "keys are bytes and durations, those .* numbers"),
        ("s", np.arange(3), "the keys are numbers, those of the view text"),
        ("s", "numbers", "numbers on s: the keys are numbers, those of the view text"),
    ],
)
def test_keys_of_another_type_than_the_column_are_refused(tmp_path, on, keys, words):
    rows = [{"n": n, "s": f"{n}"} for n in range(4)]
    write(tmp_path / "set", rows, {"n": "int", "s": "str"})
    write(tmp_path / "numbers", [{"s": 1}], {"s": "int"})
    view = View.of(tmp_path / "set")
    with pytest.raises(ConfigError, match=words):
        len(view.exclude(keys=tmp_path / keys if isinstance(keys, str) else keys, on=on))
    assert len(view.exclude(keys=[None, 2.0, "3"], on="n")) == 3
    assert len(view.exclude(keys=[], on=on)) == len(view.exclude(keys=[None], on=on)) == 4
    assert len(view.select([]).exclude(keys=["1"], on="n")) == 0


@pytest.mark.parametrize("kind", [list, np.array])
def test_a_view_stays_as_it_is_when_its_arguments_change(tmp_path, kind):
    for name, columns in (("set", ["id", "n"]), ("other", ["id", "a", "b"])):
        with MDSWriter(columns=dict.fromkeys(columns, "int"), out=tmp_path / name) as writer:
            writer.write_batch({column: [1, 2, 3] for column in columns})
    keys, columns, used = kind([1]), kind(["a"]), kind(["n", "id"])
    view = View.of(tmp_path / "set").exclude(keys=keys, on="id")
    view = view.where("n > 2", columns=used).add(tmp_path / "other", columns=columns, on="id")
    keys[0], columns[0], used[0] = 3, "b", "a"
    assert (len(view), view.columns) == (1, ["id", "n", "a"])


def test_views_share_the_cache_of_their_base(root, tmp_path):
    cache = tmp_path / "cache"
    for number in range(3):
        View.of(root / "mds").select(range(number, 40)).commit(tmp_path / f"view-{number}")
    views = [
        StreamingDataset(streams=[Stream(remote=f"file://{tmp_path}/view-{n}", local=str(cache))])
        for n in range(3)
    ]
    assert [len(list(view)) for view in views] == [40, 39, 38]


def test_streams_of_views_mix_with_others(root, tmp_path):
    View.of(root / "mds").where("n < 10").commit(tmp_path / "few")
    View.of(root / "mds").where("n >= 110").commit(tmp_path / "view")
    streams = [
        Stream(remote=str(tmp_path / "view"), repeat=2),
        Stream(remote=str(root / "mds"), select=[5]),
        Stream(remote=str(tmp_path / "few"), select=[0, 1]),
    ]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=1)
    numbers = sorted(int(row["n"]) for row in dataset)
    assert numbers == [0, 1, 5, *sorted([*range(110, 120)] * 2)]
    assert dataset.samples_per_stream.tolist() == [10, 1, 2]
    for use in dataset.where(10):
        assert (use.stream, use.index) == (1, 5)
    batches = [n for batch in dataset.batches(1) for n in batch["n"].tolist()]
    assert sorted(batches) == numbers


def test_streams_of_views_with_other_columns_give_rows_but_no_batch(root, tmp_path):
    View.of(root / "mds").where("n < 2").commit(tmp_path / "view")
    more = write(tmp_path / "more", [base_row(5) | {"extra": 1}], COLUMNS | {"extra": "int"})
    streams = [Stream(remote=str(tmp_path / "view")), Stream(remote=more)]
    for some in (streams, streams[::-1]):
        dataset = StreamingDataset(streams=some, batch_size=3)
        assert sorted(map(len, dataset)) == [3, 3, 4]
        with pytest.raises(DataError, match=r"choose those that all have with columns="):
            next(dataset.batches())
    chosen = StreamingDataset(streams=streams, columns=["n"], batch_size=3)
    assert next(chosen.batches())["n"].tolist() == [0, 1, 5]


def test_a_state_is_of_a_version(root, tmp_path):
    place = tmp_path / "view"
    View.of(root / "mds").where("n % 2").commit(place)
    View.of(place).where("n % 3").commit()
    options = {"remote": str(place), "shuffle": True, "batch_size": 4}
    dataset = StreamingDataset(**options)
    batches = dataset.batches()
    next(batches)
    state = dataset.state_dict()
    rest = [batch["id"] for batch in batches]
    resumed = StreamingDataset(**options, version=2)
    resumed.load_state_dict(state)
    assert [batch["id"] for batch in resumed.batches()] == rest
    with pytest.raises(StateError, match=r"in the state: saved version 2, now version 1;"):
        StreamingDataset(**options, version=1).load_state_dict(state)


def test_a_view_is_of_what_the_stream_selects(root, tmp_path):
    stream = Stream(remote=str(root / "mds"), select=[3, 9])
    assert View.of(stream).commit(tmp_path / "view").samples == 2
    assert [row["n"] for row in StreamingDataset(remote=str(tmp_path / "view"))] == [3, 9]
    assert str(log(tmp_path / "view")[0].steps[0].step) == "select 2 rows"


@pytest.mark.parametrize("local", ["mds", "cache"])
def test_a_view_of_a_stream_with_a_cache_takes_other_data_sets(root, tmp_path, local):
    options = {"local": str(root / "mds")}
    if local == "cache":
        options = {"remote": str(root / "mds"), "local": str(tmp_path / "cache")}
    before = set((root / "mds").rglob("*"))
    more = write(tmp_path / "more", [base_row(n) for n in range(COUNT, COUNT + 3)], COLUMNS)
    view = View.of(Stream(**options)).exclude(keys=more, on="id").concat(more)
    view = view.add(root / "captions", on="id", missing="null").where("n > 118")
    view.commit(tmp_path / "view")
    found = StreamingDataset(remote=str(tmp_path / "view"))[:]
    assert [(row["n"], row["caption"]) for row in found] == [
        (119, "caption 119"),
        *((n, None) for n in range(COUNT, COUNT + 3)),
    ]
    assert set((root / "mds").rglob("*")) == before


def test_a_view_of_a_stream_with_decoders_takes_other_data_sets(root, tmp_path):
    more = write(tmp_path / "more", [base_row(COUNT)], COLUMNS)
    stream = Stream(remote=str(root / "mds"), decoders={"label": lambda _: Upper()})
    view = View.of(stream).add(root / "captions", on="id")
    assert len(view.where("label == 'B'")) == COUNT // 2
    assert len(View.of(stream).concat(more).where("label == 'A'")) == COUNT // 2 + 1


def test_many_samples_are_evaluated_in_processes(tmp_path, monkeypatch):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write_batch({"n": np.arange(120_000)})
    seen = []
    view = View.of(tmp_path / "set", engine="local:2", on_progress=seen.append)
    kept = view.where("n % 1000 == 7")
    assert len(kept) == 120
    kept.commit(tmp_path / "view")
    numbers = [int(row["n"]) for row in StreamingDataset(remote=str(tmp_path / "view"))]
    assert numbers == list(range(7, 120_000, 1000))
    assert seen[-1] == JobProgress("where n % 1000 == 7", 120_000, 120_000)
    with pytest.raises(Exception, match=r"n / 0.*sample .*ZeroDivisionError"):
        len(view.where("n / 0"))


def test_a_forked_child_writes_other_files_than_its_parent():
    workspace, context = ViewWorkspace(), multiprocessing.get_context("fork")
    theirs = context.SimpleQueue()
    child = context.Process(target=lambda: theirs.put(workspace.new_file("rows")))
    child.start()
    assert theirs.get() != workspace.new_file("rows")
    child.join()
    assert child.exitcode == 0
    assert workspace.path.is_dir()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda view: view.where("nn > 3"), r"has no \['nn'\].*Did you mean 'n'"),
        (lambda view: view.where("n >"), "no Python expression"),
        (lambda view: view.where("1 / (n - 40)"), "sample 40: ZeroDivisionError"),
        (lambda view: view.where("np.array([1, n])"), "sample 0: ValueError: The truth"),
        (lambda view: view.where("__import__('numpy')"), r"__import__\(\) cannot be part"),
        (lambda view: view.where("n", columns=["x"]), "columns="),
        (lambda view: view.where("n", columns="n"), r"columns='n': expected a list of names"),
        (lambda view: view.where("n", columns=[]), r"columns=\[\] reads nothing"),
        (lambda view: view.add("captions", columns="caption"), "columns='caption': expected a list"),
        (lambda view: view.add("captions", columns=[], on="id"), r"columns=\[\] reads nothing"),
        (lambda view: view.add("captions", on=["id"]), r"on=\['id'\]: expected the name of a column"),
        (lambda view: view.exclude(keys=["k001"], on=5), "on=5: expected the name of a column"),
        (lambda view: view.exclude(keys=b"k001", on="id"), "keys= takes a list, or .* got bytes"),
        (lambda view: view.exclude(keys={"k001": 1}, on="id"), "keys= takes a list, or .* got dict"),
        (lambda view: view.exclude(keys=iter([]), on="id"), "keys= takes a list, or .* got list_it"),
        (lambda view: view.exclude(keys=["k001"], on="id", format="csv"), "format='csv' is for keys="),
        (lambda view: view.exclude(keys=[["k001"]], on="id"), "others that are hashable: unhash.*'list'"),
        (lambda view: view.exclude([1], format="csv"), "format='csv' is for keys="),
        (lambda view: view.sample(True), "a number from 0 to 1"),
        (lambda view: view.select([COUNT]), f"row {COUNT}, the stream has {COUNT} rows"),
        (lambda view: view.select([True]), "mask of 1 rows"),
        (lambda view: view.rename({"m": "n"}), "rename m=n"),
        (lambda view: view.rename({"n": "id"}), r"several columns would be named \['id'\]"),
        (lambda view: view.drop(["n", "id", "label"]), "no column is left"),
        (lambda view: view.add("captions"), r"columns \['id'\] already"),
        (lambda view: view.add("captions", columns=["id"], on="n"), "already"),
        (lambda view: view.where("n").add("captions", columns=["caption"]), "120 samples, the view has 119"),
        (lambda view: view.add("captions", columns=["x"]), "columns="),
        (lambda view: view.add("captions", columns=["caption"], on="x"), "on='x'"),
        (lambda view: view.exclude(keys=[1], on="x"), "on='x'"),
        (lambda view: view.exclude(keys=["k001"], on=None), "give either"),
        (lambda view: view.exclude(), "give either"),
        (lambda view: view.concat("captions"), "both must have the same"),
        (lambda view: view.sample(2), "a number from 0 to 1"),
        (lambda view: view.add("captions", on="id", missing="no"), "expected one of error"),
        (lambda view: view.add("captions", missing="drop"), "give on="),
        (lambda view: view.drop("n"), r"such as \['n'\]"),
        (lambda view: view.drop([1]), r"drop\(\[1\]\): expected a list of names"),
        (lambda view: view.rename([("n", "m")]), "expected names, such as"),
        (lambda view: view.rename({"n": 1}), "expected names, such as"),
        (lambda view: view.sample("0.5"), "from 0 to 1"),
        (lambda view: view.where(0), "expected an expression as text, got 0"),
        (lambda view: view.concat("captions", format=0), "format=0: expected a name"),
        (lambda view: view.commit(), "name the location"),
        (lambda view: view.commit("new", message=None), "message=None: expected text; leave it out"),
        (lambda view: view.commit("new", message=5), "message=5: expected text; leave it out"),
        (lambda _: compact("mds", "new", message=None), "message=None: expected text; leave it out"),
        (lambda view: view.rebase(), "no versions"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(root, monkeypatch, change, words):
    monkeypatch.chdir(root)
    with pytest.raises(Exception, match=words) as refused:
        len(change(View.of("mds")))
    assert type(refused.value).__module__.startswith("streamplug")


def test_a_view_takes_no_samples_with_columns_of_other_types(root, tmp_path):
    other = write(tmp_path / "other", [{**base_row(0), "n": "0"}], {**COLUMNS, "n": "str"})
    with pytest.raises(
        ConfigError, match=r"concat .*other: column 'n' is 'str' in it, but 'int' in the"
    ):
        View.of(root / "mds").concat(other).commit(tmp_path / "view")
    alike = write(tmp_path / "alike", [base_row(0)], {**COLUMNS, "n": "int64"})
    View.of(root / "mds").concat(alike).commit(tmp_path / "view")
    assert StreamingDataset(remote=str(tmp_path / "view"))[COUNT] == base_row(0)


@pytest.mark.parametrize("order", [1, -1])
def test_what_to_do_about_columns_of_which_one_has_none_works(order, tmp_path):
    pytest.importorskip("streamplug_parquet")
    for name, values in {"all": [1, 2], "some": [3, None]}.items():
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"x": values}), tmp_path / name / "a.parquet")
    first, second = (tmp_path / name for name in ("all", "some")[::order])
    with pytest.raises(ConfigError, match=r"\(streamplug convert … --columns x:int64\?\)"):
        View.of(first, format="parquet").concat(second, format="parquet").commit(tmp_path / "view")
    source = Stream(local=str(tmp_path / "all"), format="parquet")
    output = Output(tmp_path / "new", format="parquet", processes=0)
    convert(source, output, columns=Columns(encodings={"x": "int64?"}))
    View.of(tmp_path / "new").concat(tmp_path / "some", format="parquet").commit(tmp_path / "view")
    samples = StreamingDataset(remote=str(tmp_path / "view"), batch_size=1)
    assert [sample["x"] for sample in samples] == [1, 2, 3, None]


def test_a_view_has_a_place_of_its_own(root, tmp_path, monkeypatch):
    shutil.copytree(root / "mds", tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    view = View.of("set").where("n > 3")
    with pytest.raises(
        OutputExistsError, match="set has a data set, which would be read rather than"
    ):
        view.commit("set")
    with pytest.raises(ConfigError, match="the location of the view is empty"):
        view.commit("")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


@pytest.mark.parametrize("weight", [{"choose": 3}, {"repeat": 2}, {"proportion": 1}])
def test_weights_of_streams_are_for_epochs(root, weight):
    with pytest.raises(ConfigError, match="is for the epochs of a run; jobs and views take each"):
        View.of(Stream(local=str(root / "mds"), **weight))


def test_a_stream_can_have_decoders_for_the_columns_of_a_view(root, tmp_path):
    view = (
        View.of(root / "mds").rename({"label": "kind"}).add(root / "captions", columns=["caption"])
    )
    view.select(range(3)).commit(tmp_path / "view")

    dataset = StreamingDataset(
        remote=str(tmp_path / "view"),
        decoders={"kind": lambda _: Upper(), "caption": lambda _: Upper()},
    )
    assert [(row["kind"], row["caption"]) for row in dataset] == [
        ("A", "CAPTION 0"),
        ("B", "CAPTION 1"),
        ("A", "CAPTION 2"),
    ]
    with pytest.raises(ConfigError, match=r"decoders=\['label'\]"):
        StreamingDataset(remote=str(tmp_path / "view"), decoders={"label": lambda _: Upper()})
