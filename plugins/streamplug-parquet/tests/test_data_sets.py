"""Data sets of Parquet: files that others wrote, with no index, and those that streamplug writes."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from streamplug_files.scan_cache import read_with_digest
from streamplug_parquet import budget as budgets
from streamplug_parquet import grouped_reader as grouped_readers
from streamplug_parquet import memory_bounds
from streamplug_parquet import reader as readers
from streamplug_testing.equality import same
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamingDataset, Writer
from streamplug.cache.user_cache import source_cache_dir
from streamplug.cli import main
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DecodeError,
    EncodeError,
    InvalidIndexError,
)
from streamplug.interfaces import Encoding

COUNT = 40


def table_of(first, count=COUNT):
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array([f"text {n}" for n in numbers]),
            "vector": pa.array([[n, -n] for n in numbers], pa.list_(pa.float32(), 2)),
            "maybe": pa.array([n if n % 3 else None for n in numbers], pa.int32()),
            "tags": pa.array([[str(n)] * (n % 3) for n in numbers]),
        }
    )


def sample(n):
    return {
        "id": np.int64(n),
        "text": f"text {n}",
        "vector": np.array([n, -n], np.float32),
        "maybe": n if n % 3 else None,
        "tags": [str(n)] * (n % 3),
    }


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    (folder / "data").mkdir(parents=True)
    for shard in range(3):
        pq.write_table(
            table_of(shard * COUNT),
            folder / "data" / f"train-{shard:05d}-of-00003.parquet",
            row_group_size=7,
        )
    return folder


def opened(remote, **options):
    options = {"batch_size": 10, "format": "parquet", **options}
    return StreamingDataset(remote=str(remote), **options)


# -- files of others --------------------------------------------------------------------


@pytest.mark.parametrize(
    "below", ["data", "data/train-*.parquet", "data/train-{00000..00002}-of-00003.parquet", "**/*"]
)
def test_files_are_a_data_set_as_they_are(below, files):
    dataset = opened(files / below)
    assert len(dataset) == 3 * COUNT
    assert same([dataset[n] for n in (0, 119, 41, 7)], [sample(n) for n in (0, 119, 41, 7)])
    found = list(opened(files / below, shuffle=True))
    assert same(sorted(found, key=lambda each: each["id"]), [sample(n) for n in range(3 * COUNT)])


def test_a_file_that_is_listed_twice_is_read_twice(files):
    dataset = opened(files / "data/train-{00001,00000,00001}-of-00003.parquet")
    rows = [*range(COUNT, 2 * COUNT), *range(COUNT), *range(COUNT, 2 * COUNT)]
    assert same(list(dataset), [sample(n) for n in rows])


def test_batches_have_arrays_where_nothing_is_missing_and_lists_elsewhere(files):
    batch = next(iter(opened(files / "data", batch_size=70, shuffle=True).batches()))
    assert (batch["id"].dtype, batch["vector"].shape) == (np.int64, (70, 2))
    order = batch["id"].tolist()
    assert same(batch["text"], [f"text {n}" for n in order])
    assert same(batch["maybe"], [n if n % 3 else None for n in order])
    assert np.array_equal(batch["vector"], [[n, -n] for n in order])


def test_the_order_goes_on_where_it_stood(files):
    def ids(dataset):
        return [int(batch["id"][0]) for batch in dataset.batches()]

    whole = ids(opened(files / "data", shuffle=True, batch_size=1))
    dataset = opened(files / "data", shuffle=True, batch_size=1)
    batches = iter(dataset.batches())
    begun = [int(next(batches)["id"][0]) for _ in range(50)]
    state = dataset.state_dict()
    later = opened(files / "data", shuffle=True, batch_size=1)
    later.load_state_dict(state)
    assert begun + ids(later) == whole
    assert sorted(whole) == list(range(3 * COUNT)) != whole


def test_files_mix_with_shards_of_another_format(files, tmp_path):
    with MDSWriter(out=tmp_path / "mds", columns={"text": "str"}) as out:
        out.write_batch({"text": [f"other {n}" for n in range(50)]})
    streams = [
        Stream(remote=str(files / "data"), format="parquet", proportion=0.5),
        Stream(local=str(tmp_path / "mds"), proportion=0.5),
    ]
    dataset = StreamingDataset(streams=streams, columns=["text"], batch_size=10, epoch_size=100)
    kinds = [each["text"].split()[0] for each in dataset]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"text": 50, "other": 50}


def test_far_files_are_looked_through_by_their_footers_alone(tmp_path):
    large = pa.table({"x": np.random.default_rng(0).integers(0, 255, 1_500_000, dtype=np.uint8)})
    (tmp_path / "far").mkdir()
    for name in "ab":
        pq.write_table(large, tmp_path / "far" / f"{name}.parquet", compression="none")
    with serving(tmp_path / "far") as server:
        remote = [f"{server.url}/{name}.parquet" for name in "ab"]
        dataset = StreamingDataset(
            remote=remote, local=str(tmp_path / "cache"), format="parquet", batch_size=10
        )
        assert len(dataset) == 3_000_000
        assert server.bytes_sent < 200_000
        assert dataset[2_000_000]["x"] == large["x"][500_000].as_py()
        assert [path for _, path, part in server.requests if part is None and path] != []
        again = StreamingDataset(
            remote=remote, local=str(tmp_path / "cache"), format="parquet", batch_size=10
        )
        sent = server.bytes_sent
        assert again[2_000_001]["x"] == large["x"][500_001].as_py()
        assert server.bytes_sent == sent


def test_an_index_can_be_written_beside_them(files):
    done = CliRunner().invoke(main, ["index", "scan", str(files / "data"), "--format", "parquet"])
    assert done.exit_code == 0, done.output
    (entry, *_) = json.loads((files / "data" / "index.json").read_text())["shards"]
    assert entry["columns"] == {
        "id": "int64",
        "text": "string",
        "vector": "fixed_size_list<float>[2]",
        "maybe": "int32?",
        "tags": "list<string>?",
    }
    dataset = StreamingDataset(local=str(files / "data"), batch_size=10)
    assert same(dataset[100], sample(100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns("text"), "some lack 'text'"),
        (
            lambda t: t.set_column(0, "id", pa.array(range(COUNT), pa.int32())),
            "'id' is int64 .* int32",
        ),
        (lambda t: t.append_column("more", t["id"]), "some lack 'more'"),
    ],
)
def test_files_that_differ_are_refused_by_what_differs(change, message, files):
    pq.write_table(change(table_of(0)), files / "data" / "x.parquet")
    with pytest.raises(InvalidIndexError, match=message):
        opened(files / "data")


def test_a_column_of_nothing_but_none_takes_the_type_of_others(files):
    nothing = table_of(120).set_column(0, "id", pa.nulls(COUNT))
    nothing = nothing.set_column(1, "text", pa.nulls(COUNT))
    pq.write_table(nothing, files / "data" / "x.parquet")
    dataset = opened(files / "data")
    assert [dataset[n]["id"] for n in (125, 5)] == [None, 5]
    assert [dataset[n]["text"] for n in (125, 5)] == [None, "text 5"]


def test_what_files_say_of_missing_values_is_not_trusted(files, tmp_path):
    dataset = opened(files / "data")
    dataset[0]
    (index,) = source_cache_dir(str(files / "data")).glob(".streamplug/scan/*.index")
    shards = json.loads(read_with_digest(index))
    for entry in shards["shards"]:
        entry["columns"]["maybe"] = "int32"
        entry["raw_data"]["hashes"] = {}
    (files / "data" / "index.json").write_text(json.dumps(shards))
    lied = StreamingDataset(local=str(files / "data"), batch_size=10)
    with pytest.raises(DecodeError, match=r"row group 0, column 'maybe': 3 values are missing"):
        lied[1]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InvalidIndexError, match=r"the column 'a' 2 times"):
        opened(tmp_path)


def test_what_is_no_parquet_file_is_refused(tmp_path):
    for content, message in (
        (b"PAR1", "too few"),
        (b"x" * 100, "was cut short, or is none"),
        (b"x" * 92 + b"\4\0\0\0PARE", "encrypted"),
        (b"x" * 92 + b"\xff\0\0\0PAR1", "its footer would have"),
        (b"x" * 92 + b"\x10\0\0\0PAR1", "footer is damaged"),
    ):
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(CorruptShardError, match=message):
            opened(tmp_path)


# -- values -----------------------------------------------------------------------------


def one_column(folder, array, **options):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": array}), folder / "x.parquet", **options)
    dataset = opened(folder, batch_size=len(array), shuffle=False)
    (batch,) = dataset.batches()
    assert same([each["x"] for each in dataset], list(batch["x"]))
    return batch["x"]


def test_extensions_are_what_they_are_stored_as_and_dictionaries_their_values(tmp_path):
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(12, dtype="f4").reshape(3, 2, 2)
    )
    assert same(one_column(tmp_path / "a", tensors), np.arange(12, dtype="f4").reshape(3, 4))
    words = pa.array(["a", None, "a"]).dictionary_encode()
    assert one_column(tmp_path / "b", words) == ["a", None, "a"]
    many = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), pa.array([5, 7]))
    assert same(one_column(tmp_path / "c", many), np.array([7, 5, 7]))
    large = pa.array([["x"], None], pa.large_list(pa.large_string()))
    assert one_column(tmp_path / "d", large) == [["x"], None]


@pytest.mark.skipif(not hasattr(pa, "decimal32"), reason="this pyarrow has no such types")
def test_short_decimals_are_read_and_written_as_those_of_128_bits(tmp_path):
    price = Decimal("1.25")
    for type_ in (pa.decimal32(5, 2), pa.decimal64(12, 2)):
        name = str(type_)[:9]
        prices = pa.array([price, None], type_)
        assert one_column(tmp_path / name, prices) == [price, None]
        lists = pa.array([[price], None], pa.list_(type_))
        assert one_column(tmp_path / f"{name}-lists", lists) == [[price], None]
        spec = f"decimal128({type_.precision}, 2)?"
        with Writer(
            out=str(tmp_path / f"{name}-new"), columns={"x": spec}, format="parquet"
        ) as out:
            out.write_batch({"x": prices})
        assert StreamingDataset(local=str(tmp_path / f"{name}-new"), batch_size=1)[0]["x"] == price


def test_nanoseconds_are_arrays_and_integers_inside_of_others(tmp_path):
    times = pa.array([1, 2], pa.timestamp("ns"))
    assert same(one_column(tmp_path / "a", times), np.array([1, 2], "M8[ns]"))
    inside = pa.array([[1], [2, 3]], pa.list_(pa.timestamp("ns")))
    assert one_column(tmp_path / "b", inside) == [[1], [2, 3]]


@pytest.mark.parametrize("nested", [False, True])
def test_int96_that_nanoseconds_do_not_reach_is_refused(tmp_path, nested):
    near, far = np.array(["2024-02-29T01:02:03.456789", "9999-12-31T00:00:00"], "M8[us]")
    type_ = pa.timestamp("us")
    for moment in (near, far):
        values = pa.array([moment], type_)
        if nested:
            values = pa.array([[{"at": values[0].as_py()}]], pa.list_(pa.struct({"at": type_})))
        table = pa.table({"t": values, "n": [1]})
        path = tmp_path / str(moment)[:4] / "a.parquet"
        path.parent.mkdir()
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    [read] = StreamingDataset(remote=str(tmp_path / "2024"), format="parquet", batch_size=1)
    found = read["t"][0]["at"] if nested else read["t"]
    assert found == near.astype("M8[ns]").astype(int if nested else "M8[ns]")
    late = StreamingDataset(remote=str(tmp_path / "9999"), format="parquet", batch_size=1)
    with pytest.raises(DecodeError, match=r"row group 0, column 't': its INT96 timestamps .* 2261"):
        late[0]
    others = str(tmp_path / "9999")
    dataset = StreamingDataset(remote=others, format="parquet", batch_size=1, columns=["n"])
    assert dataset[0] == {"n": 1}


def test_a_missing_number_inside_of_an_array_makes_lists_of_them(tmp_path):
    array = pa.array([[1, None], [3, 4]], pa.list_(pa.int8(), 2))
    assert one_column(tmp_path / "a", array) == [[1, None], [3, 4]]
    fine = pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))
    assert same(one_column(tmp_path / "b", fine), np.array([[1, 2], [3, 4]], np.int8))


def test_maps_and_times_of_day_are_read(tmp_path):
    maps = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))
    assert one_column(tmp_path / "a", maps) == [{"a": 1}, {}]
    assert one_column(tmp_path / "b", pa.array([5], pa.time64("ns")))[0] == 5
    assert str(one_column(tmp_path / "c", pa.array([5], pa.time64("us")))[0]) == "00:00:00.000005"


def test_text_that_repeats_is_not_made_larger_than_need_be(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 7_000_000)
    monkeypatch.setattr(memory_bounds, "budget", budgets.Budget(0))
    long = ["a" * 5000, "b" * 7000]
    found = one_column(tmp_path / "a", pa.array([*long * 500, None]))
    assert found == [*long * 500, None]
    held = [each.nbytes for key, each in budgets.budget._chunks.items() if key[2] == "x"]
    assert held[-1] < 100_000


class Reversed(Encoding):
    def encode(self, value):
        raise NotImplementedError

    def decode(self, data):
        if bytes(data) == b"bad":
            raise ValueError("not this one")
        return bytes(data)[::-1]


def test_decoders_take_bytes_text_and_files(tmp_path):
    files = pa.array(
        [{"bytes": b"abc", "path": "a.jpg"}, None, {"bytes": b"de", "path": None}],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
    )
    table = pa.table({"image": files, "text": ["ab", "é", None], "raw": [b"1", b"23", b""]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    plain = opened(tmp_path)
    assert plain[0]["image"] == {"bytes": b"abc", "path": "a.jpg"}
    decoders = {name: lambda _: Reversed() for name in table.column_names}
    dataset = opened(tmp_path, decoders=decoders, batch_size=3, shuffle=False)
    expected = {
        "image": [b"cba", None, b"ed"],
        "text": [b"ba", "é".encode()[::-1], None],
        "raw": [b"1", b"32", b""],
    }
    (batch,) = dataset.batches()
    assert batch == expected
    assert [dataset[n] for n in range(3)] == [
        {name: values[n] for name, values in expected.items()} for n in range(3)
    ]


def test_images_of_hugging_face_are_decoded_when_asked_for(tmp_path):
    image = pytest.importorskip("PIL.Image")
    streamplug_image = pytest.importorskip("streamplug_image")
    path = tmp_path / "a.png"
    image.fromarray(np.full((4, 6, 3), 9, np.uint8)).save(path)
    cells = pa.array([{"bytes": path.read_bytes(), "path": "a.png"}] * 3)
    pq.write_table(pa.table({"image": cells}), tmp_path / "x.parquet")
    dataset = opened(
        tmp_path, decoders={"image": streamplug_image.ImageArrays((2, 2))}, batch_size=3
    )
    (batch,) = dataset.batches()
    assert same(batch["image"], np.full((3, 2, 2, 3), 9, np.uint8))


def test_batches_without_missing_images_are_arrays_whatever_is_read_with_them(tmp_path):
    image = pytest.importorskip("PIL.Image")
    streamplug_image = pytest.importorskip("streamplug_image")
    path = tmp_path / "a.png"
    image.fromarray(np.full((4, 6, 3), 9, np.uint8)).save(path)
    cells = [None if n == 4 else path.read_bytes() for n in range(12)]
    pq.write_table(pa.table({"image": cells}), tmp_path / "x.parquet")
    dataset = opened(
        tmp_path, decoders={"image": streamplug_image.ImageArrays((2, 2))}, batch_size=3
    )
    batches = [batch["image"] for batch in dataset.batches()]
    assert [type(batch) for batch in batches] == [np.ndarray, list, np.ndarray, np.ndarray]
    assert [value is None for value in batches[1]] == [False, True, False]


def test_values_that_cannot_be_decoded_are_named(tmp_path):
    pq.write_table(pa.table({"x": [b"fine", b"bad", b"fine"]}), tmp_path / "x.parquet")
    dataset = opened(tmp_path, decoders={"x": lambda _: Reversed()}, batch_size=3, shuffle=False)
    for read in (lambda: dataset[1], lambda: list(dataset.batches())):
        with pytest.raises(
            DecodeError, match=r"x\.parquet\).*sample 1, column 'x': .*not this one"
        ):
            read()


def test_text_that_is_not_utf_8_is_named(tmp_path):
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer(b"a\xff")]
    )
    pq.write_table(pa.table({"x": bad}), tmp_path / "x.parquet")
    dataset = opened(tmp_path, batch_size=2, shuffle=False)
    for read in (lambda: dataset[1], lambda: list(dataset.batches())):
        with pytest.raises(DecodeError, match=r"sample 1, column 'x': .*utf-8"):
            read()


# -- row groups ---------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    found = []
    read = readers.ParquetReader._read

    def counted(self, content, group, names, dictionaries):
        found.append((group, *names))
        return read(self, content, group, names, dictionaries)

    monkeypatch.setattr(readers.ParquetReader, "_read", counted)
    return found


def test_only_the_row_groups_and_columns_asked_for_are_decoded_and_those_once(files, reads):
    dataset = opened(files / "data", columns=["id", "text"])
    assert [dataset[n]["id"] for n in (0, 6, 7, 3)] == [0, 6, 7, 3]
    assert reads == [(0, "id", "text"), (1, "id", "text")]
    list(opened(files / "data", columns=["id"], shuffle=True, batch_size=5).batches())
    assert len(reads) == 2 + 3 * 6
    assert len(set(reads[2:])) == 6


def test_without_room_row_groups_are_decoded_again(files, reads, monkeypatch):
    small = budgets.Budget(400)
    monkeypatch.setattr(grouped_readers, "budget", small)
    found = [int(each["id"]) for each in opened(files / "data", shuffle=True)]
    assert sorted(found) == list(range(3 * COUNT))
    assert len(reads) > 18
    assert 0 < small.held <= 400
    assert small.held == sum(chunk.nbytes for chunk in small._chunks.values())


@pytest.mark.parametrize("is_text", [True, False])
def test_row_groups_have_2_gib_of_text_or_more(tmp_path, monkeypatch, is_text):
    """Its zeros take no memory, as they are not read."""
    plain, wide = (pa.string(), pa.large_string()) if is_text else (pa.binary(), pa.large_binary())
    pq.write_table(pa.table({"x": pa.array([b"", b""], plain)}), tmp_path / "x.parquet")
    size = 1 << 31
    buffers = [np.array([0, size - 2, size], np.int64), np.zeros(size, np.uint8)]
    large = pa.Array.from_buffers(wide, 2, [None, *map(pa.py_buffer, buffers)])
    monkeypatch.setattr(readers.ParquetReader, "_read", lambda *_: pa.table({"x": large}))
    dataset = opened(tmp_path, batch_size=2)
    value = "\0\0" if is_text else b"\0\0"
    assert dataset[1] == {"x": value}
    # Arrow reads it in parts, each of less than 2 GiB.
    parts = pa.chunked_array([pa.array([b"abc"], plain), pa.array([b"de"], plain)])
    monkeypatch.setattr(readers.ParquetReader, "_read", lambda *_: pa.table({"x": parts}))
    monkeypatch.setattr(grouped_readers, "MAX_OFFSET", 4)
    found = list(opened(tmp_path, batch_size=2, shuffle=False))
    assert [row["x"] for row in found] == (["abc", "de"] if is_text else [b"abc", b"de"])
    assert grouped_readers._whole(parts).type == wide


def test_an_empty_limit_of_the_environment_is_the_default(monkeypatch):
    monkeypatch.setenv(budgets.VARIABLE, "")
    assert budgets.Budget().limit == 512 << 20
    monkeypatch.setenv(budgets.VARIABLE, "1kb")
    assert budgets.Budget().limit == 1024


def test_what_was_decoded_goes_with_its_data_set(files, monkeypatch):
    own = budgets.Budget(1 << 20)
    monkeypatch.setattr(grouped_readers, "budget", own)
    dataset = opened(files / "data")
    dataset[0]
    assert own.held > 7 * 8
    del dataset
    gc.collect()  # on Python 3.13, frames of the missing index.json refer to it in a cycle
    opened(files / "data", columns=["id"])[0]
    assert own.held == 7 * 8


def test_many_threads_read_the_same(files):
    dataset = opened(files / "data")

    def work(turn):
        ids = np.random.default_rng(turn).integers(0, 3 * COUNT, 30).tolist()
        return same([dataset[n] for n in ids], [sample(n) for n in ids])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(40)))


# -- damage ---------------------------------------------------------------------------------


def test_damage_names_the_file_the_row_group_and_the_column(tmp_path):
    with Writer(
        out=tmp_path / "set", columns={"a": "int64", "b": "string"}, format="parquet:10"
    ) as out:
        out.write_batch({"a": np.arange(30), "b": [f"text {n}" for n in range(30)]})
    path = tmp_path / "set" / "shard.00000.parquet"
    chunk = pq.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 0x40
    path.write_bytes(data)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=10)
    assert dataset[9] == {"a": 9, "b": "text 9"}
    with pytest.raises(CorruptShardError, match=r"00000\.parquet\).*row group 1, column 'b'"):
        dataset[10]
    assert (
        StreamingDataset(local=str(tmp_path / "set"), batch_size=10, columns=["a"])[10]["a"] == 10
    )


@pytest.mark.parametrize(
    "place", ["reader.ParquetReader._read", "grouped_reader._whole", "chunks.Collected.put"]
)
def test_a_lack_of_memory_is_no_damage(files, tmp_path, monkeypatch, place):
    def fail(*_):
        raise pa.ArrowMemoryError("malloc failed")

    options = {"local": str(tmp_path / "cache"), "on_error": "substitute"}
    dataset = opened(f"file://{files}/data", **options)
    monkeypatch.setattr(f"streamplug_parquet.{place}", fail)
    with pytest.raises(MemoryError, match="malloc failed"):
        next(dataset.batches())
    assert (dataset.stats().repairs, dataset.stats().substitutions) == (0, 0)


def test_columns_that_are_too_large_to_be_true_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 1 << 10)
    monkeypatch.setattr(memory_bounds, "budget", budgets.Budget(0))
    pq.write_table(pa.table({"x": np.zeros(1_000_000)}), tmp_path / "x.parquet")
    with pytest.raises(CorruptShardError, match=r"column 'x': the values take up to \d+ bytes"):
        opened(tmp_path)[0]


def test_a_file_that_has_other_columns_than_the_index_says_is_refused(tmp_path):
    with Writer(out=tmp_path / "set", columns={"a": "int64"}, format="parquet") as out:
        out.write({"a": 1})
    path = tmp_path / "set" / "index.json"
    text = path.read_text()
    for spec, message in (
        ('"a": "int32"', "is int64, the index says int32"),
        ('"b": "int64"', "no column 'b'"),
    ):
        path.write_text(
            text.replace('"a": "int64"', spec).replace('"a":"int64"', spec.replace(" ", ""))
        )
        with pytest.raises(CorruptShardError, match=message):
            StreamingDataset(local=str(tmp_path / "set"), batch_size=10)[0]


# -- writing ----------------------------------------------------------------------------------


def write(folder, columns, rows, **options):
    with Writer(out=folder, columns=columns, **{"format": "parquet", **options}) as out:
        for row in rows:
            out.write(row)


def test_samples_have_thousands_of_columns_of_text(tmp_path):
    sample = {f"column {n}": "ab" for n in range(4000)}
    with Writer(columns=dict.fromkeys(sample, "string"), out=tmp_path, format="parquet") as writer:
        writer.write(sample)
    assert pq.read_table(tmp_path / "shard.00000.parquet").to_pylist() == [sample]


def test_the_same_samples_give_the_same_bytes_however_they_are_given(tmp_path):
    rows = [{"a": n, "b": f"text {n}" if n % 5 else None} for n in range(1000)]
    columns = {"a": "int64", "b": "string?"}
    options = {
        "format": "parquet:rows=100,compression=zstd:9",
        "size_limit": 8192,
        "hashes": ["sha1"],
    }
    write(tmp_path / "one", columns, rows, **options)
    with Writer(out=tmp_path / "many", columns=columns, **options) as out:
        for start in range(0, 1000, 300):
            part = rows[start : start + 300]
            out.write_batch({name: [row[name] for row in part] for name in columns})
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) > 3
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    sizes = [(tmp_path / "one" / name).stat().st_size for name in names if name != "index.json"]
    assert max(sizes) <= 8192
    found = list(StreamingDataset(local=str(tmp_path / "one"), batch_size=1, validate_hash="sha1"))
    assert [{"a": int(each["a"]), "b": each["b"]} for each in found] == rows


@pytest.mark.parametrize(
    ("spec", "rows", "compression"),
    [
        ("parquet:7", 7, "ZSTD"),
        ("parquet:rows=9,compression=snappy", 9, "SNAPPY"),
        ("parquet:size=100b,compression=none", 5, "UNCOMPRESSED"),
        ("parquet", 64, "ZSTD"),
    ],
)
def test_row_groups_and_compression_are_as_asked_for(spec, rows, compression, tmp_path):
    write(
        tmp_path / "set",
        {"a": "int64", "b": "binary"},
        [{"a": n, "b": b"12345678"} for n in range(64)],
        format=spec,
    )
    metadata = pq.read_metadata(tmp_path / "set" / "shard.00000.parquet")
    assert metadata.row_group(0).num_rows == rows
    assert metadata.row_group(0).column(0).compression == compression
    assert metadata.num_rows == 64


def test_a_level_that_a_compression_does_not_have_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"compression=gzip:99: .*take another level"):
        write(tmp_path / "set", {"a": "int64"}, [{"a": 1}], format="parquet:compression=gzip:99")


def test_files_may_be_compressed_as_others(tmp_path):
    write(tmp_path / "set", {"a": "int64"}, [{"a": n} for n in range(64)], compression="gz")
    assert [path.name for path in (tmp_path / "set").glob("*.gz")] == ["shard.00000.parquet.gz"]
    dataset = StreamingDataset(
        remote=str(tmp_path / "set"), local=str(tmp_path / "cache"), batch_size=8
    )
    assert [int(each["a"]) for each in dataset] == list(range(64))


def test_arrow_arrays_are_written_as_they_are(tmp_path):
    table = table_of(0)
    columns = {
        "id": "int64", "text": "string", "vector": "fixed_size_list<float>[2]", "maybe": "int32?",
        "tags": "list<string>",
    }  # fmt: skip
    with Writer(out=tmp_path / "set", columns=columns, format="parquet:11") as out:
        out.write_batch({name: table[name] for name in columns})
        out.write_batch({name: table[name].combine_chunks()[5:9] for name in columns})
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=10, shuffle=False)
    expected = [*range(COUNT), 5, 6, 7, 8]
    assert same([dataset[n] for n in range(len(expected))], list(map(sample, expected)))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("int64", None), ("int64", 1.0), ("int64", True), ("int8", 128), ("int32", "1"), ("bool", 1),
        ("float", "1"), ("string", b"x"), ("string", "\ud800"), ("binary", "x"), ("string", None),
        ("list<int32>", [1, None]), ("list<int32>", "12"), ("list<int32>", 3), ("list<int32>", [[1]]),
        ("fixed_size_list<float>[2]", [1.0]), ("fixed_size_list<int8>[2]", [1, None]),
        ("struct<a: int64>", {"a": 1, "b": 2}), ("struct<a: int64>", {"a": "x"}), ("timestamp[us]", 3),
        ("list<struct<a: int64>>", [{"b": 1}]), ("fixed_size_binary[2]", b"123"),
        ("decimal128(4, 1)", "1.5"), ("uint8", -1),
        ("struct<a: int64>", {"a": 1.0}), ("struct<a: int64>", {"a": np.float64(2.9)}),
        ("struct<a: int64>", (1.5,)), ("struct<a: int64>", [("a", 1.5)]), ("struct<a: string>", {"a": b"x"}),
        ("struct<a: binary>", {"a": "x"}), ("struct<a: int64>", {"a": True}),
        ("struct<a: list<int8>>", {"a": np.array([1.5])}), ("struct<a: list<int8>>", {"a": b"ab"}),
        ("struct<a: list<string>>", {"a": np.array([b"x"])}), ("list<list<int32>>", [[1], [1.5]]),
        ("list<list<int32>>", [[1], np.array([1.5], object)]), ("list<string>", "ab"),
        ("list<struct<a: struct<b: int64>>>", [{"a": None}, None, {"a": {"b": 1.0}}]),
        ("map<string, int64>", {1: 1}), ("map<string, int64>", {"a": 1.0}), ("map<string, int64>", "ab"),
        ("map<string, int64>", {None: 1}), ("map<string, int64>", [("a", 1), ("a", 2)]),
        ("map<string, int64>", [["a", 1]]), ("map<string, int64>", None), ("map<int8, int8>", {128: 1}),
        ("list<map<string, float>>", [{}, {"a": 1e39}]), ("map<int8, struct<a: int8>>", {1: {"b": 1}}),
    ],
)  # fmt: skip
def test_other_values_are_refused_by_the_name_of_the_column(spec, value, tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        with pytest.raises(EncodeError, match="column 'x'"):
            out.write({"x": value})
        with pytest.raises(EncodeError, match="column 'x'"):
            out.write_batch({"x": [value]})


@pytest.mark.parametrize(
    ("spec", "value", "advice"),
    [
        ("int64", None, r"ends with a question mark: int64\?$"),
        ("date32", None, r"ends with a question mark: date32\?$"),
        ("list<float>?", [1.0, None], r"no None inside of list<float>; write another value"),
        ("list<timestamp[us]>", [None], r"no None inside of list<timestamp\[us\]>; write"),
        ("fixed_size_list<int8>[2]", [1, None], r"inside of fixed_size_list<int8>\[2\]; write"),
        ("list<fixed_size_list<int8>[2]>", [[1, None]], r"fixed_size_list<int8>\[2\]>; write"),
    ],
)
def test_none_is_refused_with_what_to_do(spec, value, advice, tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        with pytest.raises(EncodeError, match=advice):
            out.write({"x": value})
        with pytest.raises(EncodeError, match=advice):
            out.write_batch({"x": [value]})


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("struct<a: int64>", {"a": 1.0}, pa.struct({"a": pa.float64()})),
        ("struct<a: int64>", {"a": 1, "b": 2}, pa.struct({"a": pa.int64(), "b": pa.int64()})),
        ("list<list<int32>>", [[1.0]], pa.list_(pa.large_list(pa.float32()))),
        ("list<struct<a: string>>", [{"a": b"x"}], pa.list_(pa.struct({"a": pa.binary()}))),
        ("list<string>", [1], pa.list_(pa.int64())),
        ("map<string, int64>", {"a": 1.0}, pa.map_(pa.string(), pa.float64())),
        ("map<string, int64>", [("a", 1), ("b", 2), ("a", 3)], pa.map_(pa.string(), pa.int64())),
        (
            "list<map<int8, map<int8, int8>>>",
            [{1: [(2, 3), (2, 3)]}],
            pa.list_(pa.map_(pa.int8(), pa.map_(pa.int8(), pa.int8()))),
        ),
    ],
)
def test_arrow_arrays_of_other_types_are_refused_at_any_depth(spec, value, found, tmp_path):
    out = Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet")
    with out, pytest.raises(EncodeError, match="column 'x': takes "):
        out.write_batch({"x": pa.array([value], found)})


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("struct<a: int64>", {"a": None}, pa.struct({"a": pa.null()})),
        ("struct<a: double>", {"a": 3}, pa.struct({"a": pa.int32()})),
        ("list<list<int64>>", [[3]], pa.large_list(pa.list_(pa.int8(), 1))),
        (
            "list<struct<key: string, value: int64>>",
            [{"key": "a", "value": 1}],
            pa.map_(pa.string(), pa.int32()),
        ),
        ("list<string>", ["x"], pa.list_(pa.dictionary(pa.int8(), pa.large_string()))),
        ("map<string, int64>", {"a": 1, "b": None}, pa.map_(pa.large_string(), pa.int8())),
        ("list<map<int8, string>>", [{1: "x"}], pa.large_list(pa.map_(pa.int8(), pa.string()))),
    ],
)
def test_arrow_arrays_of_narrower_types_are_taken_at_any_depth(spec, value, found, tmp_path):
    try:
        column = pa.array([value], found)
    except pa.ArrowNotImplementedError as error:  # of this pyarrow
        pytest.skip(str(error))
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        out.write_batch({"x": column})
    assert StreamingDataset(local=str(tmp_path / "set"), batch_size=1)[0] == {"x": value}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("timestamp[s]", r"column 'x': Parquet stores timestamp\[s\] as timestamp\[ms\]"),
        ("map<list<int8>, int64>", "column 'x': .* is read, but not written"),
        ("map<string, list<timestamp[us]>>", "column 'x': timestamp.* is read, but not written"),
        ("time64[us]", "column 'x': .* is read, but not written"),
        ("list<timestamp[us]>?", None),
        ("struct<a: timestamp[us]>", "column 'x': .* is read, but not written"),
    ],
)
def test_types_that_cannot_be_written_are_refused(spec, message, tmp_path):
    if message is None:
        Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet").finish()
        return
    with pytest.raises(ConfigError, match=message):
        Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet")


@pytest.mark.parametrize(
    "argument",
    ["", "0", "x", "rows=0", "size=x", "compression=lzma", "compression=snappy:3", "level=3"],
)
def test_other_options_are_refused(argument, tmp_path):
    if argument:
        with pytest.raises(ConfigError):
            Writer(out=tmp_path / "set", columns={"x": "int64"}, format=f"parquet:{argument}")


def test_files_whose_columns_differ_are_named(tmp_path):
    for name, column in (("a", "x"), ("b", "x"), ("c", "y")):
        pq.write_table(pa.table({column: [1]}), tmp_path / f"{name}.parquet")
    with pytest.raises(
        InvalidIndexError, match=r": a\.parquet and c\.parquet: the files do not all"
    ):
        StreamingDataset(remote=str(tmp_path), format="parquet")
