"""Sets of chunks are data sets like any other; what is damaged or cannot be read is refused, and says why."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_litdata import memory_bounds
from streamplug_litdata.row_chunks import RowsReader
from streamplug_testing.http import serving
from streamplug_testing.memory import takes_less_of_the_system
from streamplug_tools.verification import verify

from streamplug import MDSWriter, Stream, StreamingDataset, World, Writer
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    DecodeError,
    InvalidIndexError,
    NotFound,
    StorageError,
    UnsafeTypeError,
)
from streamplug.interfaces import Encoding
from streamplug.plugin import make

GOLDEN = Path(__file__).with_name("golden") / "0.2.76"
COUNT = 40


def spec_of(kind, children=(), context=None):
    return {"type": kind, "context": context, "children_spec": list(children)}


LEAF = spec_of(None)
FACTORY = {"default_factory_module": "not_there", "default_factory_name": "list"}
DEFAULTS = {**FACTORY, "dict_context": ["b", "a"]}


def dict_of(**children):
    return spec_of("builtins.dict", children.values(), json.dumps(list(children)))


def write(folder, items, kinds, spec, *, chunk=8, **config):
    """Write chunks of items, which are lists of leaves, as bytes."""
    folder.mkdir()
    chunks = []
    for first in range(0, len(items), chunk):
        some = items[first : first + chunk]
        rows = [struct.pack(f"<{len(x)}I", *map(len, x)) + b"".join(x) for x in some]
        begin = 4 * (len(rows) + 2)
        offsets = begin + np.cumsum([0, *map(len, rows)])
        data = np.array([len(rows), *offsets], "<u4").tobytes() + b"".join(rows)
        name = f"chunk-0-{len(chunks)}.bin"
        (folder / name).write_bytes(data)
        size = {"chunk_bytes": len(data), "chunk_size": len(rows), "dim": None}
        chunks.append({**size, "filename": name})
    config = {
        "compression": None,
        "data_format": kinds,
        "data_spec": json.dumps([1, spec]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
        **config,
    }
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


def number(i):
    return struct.pack("<q", i)


@pytest.fixture
def numbers(tmp_path):
    """A set of dicts of a number and a text."""
    items = [[number(i), f"text {i}".encode()] for i in range(COUNT)]
    write(tmp_path / "set", items, ["int", "str"], dict_of(id=LEAF, text=LEAF))
    return tmp_path / "set"


def opened(remote, **options):
    return StreamingDataset(remote=str(remote), format="litdata", **options)


def edit(folder, **config):
    path = folder / "index.json"
    index = json.loads(path.read_text())
    index["config"].update(config)
    path.write_text(json.dumps(index))


# -- as data sets are ------------------------------------------------------------------------


def test_the_order_is_that_of_any_data_set_on_any_number_of_ranks(numbers, tmp_path):
    with MDSWriter(
        out=str(tmp_path / "mds"), columns={"id": "int"}, max_samples_per_shard=8
    ) as out:
        for i in range(COUNT):
            out.write({"id": i})
    options = {"shuffle": True, "shuffle_seed": 3, "batch_size": 4}
    mds = StreamingDataset(local=str(tmp_path / "mds"), **options)
    expected = [sample["id"] for sample in mds]
    assert [sample["id"] for sample in opened(numbers, **options)] == expected
    assert sorted(expected) == list(range(COUNT))
    for ranks in (2, 4):
        seen = []
        for rank in range(ranks):
            world = World(ranks_per_node=ranks, rank=rank)
            some = opened(numbers, **options | {"batch_size": 8 // ranks}, world=world)
            seen += [sample["id"] for sample in some]
        assert sorted(seen) == list(range(COUNT))


def test_a_run_continues_where_it_stood(numbers):
    options = {"shuffle": True, "batch_size": 4, "columns": ["id"]}
    whole = [list(batch["id"]) for batch in opened(numbers, **options).batches()]
    first = opened(numbers, **options)
    batches = first.batches()
    begun = [list(next(batches)["id"]) for _ in range(4)]
    state = first.state_dict()
    second = opened(numbers, **options)
    second.load_state_dict(state)
    assert begun + [list(batch["id"]) for batch in second.batches()] == whole


def test_streams_mix_with_others(numbers, tmp_path):
    with MDSWriter(out=str(tmp_path / "mds"), columns={"id": "int", "text": "str"}) as out:
        out.write_batch({"id": list(range(100, 120)), "text": ["mds"] * 20})
    streams = [Stream(remote=str(numbers), format="litdata"), Stream(local=str(tmp_path / "mds"))]
    mixed = StreamingDataset(streams=streams, batch_size=4)
    assert sorted(sample["id"] for sample in mixed) == [*range(COUNT), *range(100, 120)]


@pytest.mark.parametrize("access", ["shard", "range"])
def test_a_remote_set_is_read(numbers, tmp_path, access):
    expected = list(opened(numbers))
    with serving(numbers.parent) as server:
        remote = f"{server.url}/set"
        first = opened(remote, local=str(tmp_path / "cache"), access=access)
        assert list(first) == expected
        again = opened(remote, local=str(tmp_path / "cache"), access=access)
        assert again[17] == expected[17]


def test_compressed_files_come_through_the_cache(tmp_path):
    pytest.importorskip("streamplug_zstandard")
    with serving(GOLDEN) as server:
        dataset = opened(f"{server.url}/files", local=str(tmp_path))
        assert [sample["id"] for sample in dataset] == list(range(7))
        assert sorted(path.suffixes[0] for path in tmp_path.glob("chunk*")) == [".bin"] * 3


def test_verifying_a_set_decodes_all_of_it(numbers):
    found = verify(Stream(remote=str(numbers), format="litdata"))
    assert (found.samples, found.problems) == (COUNT, ())
    damage(numbers / "chunk-0-1.bin", at=-1, to=0xFF)
    found = verify(Stream(remote=str(numbers), format="litdata"))
    assert [(problem.shard, problem.index) for problem in found.problems] == [(1, 7)]


def test_columns_and_decoders_apply(numbers):
    class Upper(type(make("encoding", "str"))):
        def decode(self, data):
            return super().decode(data).upper()

        def decode_batch(self, buffer, starts, sizes):
            return [text.upper() for text in super().decode_batch(buffer, starts, sizes)]

    dataset = opened(numbers, columns=["text"], decoders={"text": lambda _: Upper()})
    assert dataset[3] == {"text": "TEXT 3"}
    assert list(dataset)[3] == {"text": "TEXT 3"}


def test_a_child_reads_rows_that_a_thread_was_reading_at_the_fork(monkeypatch):
    pytest.importorskip("pyarrow")
    dataset, read = opened(GOLDEN / "rows"), RowsReader._read
    is_reading, may_go_on = threading.Event(), threading.Event()

    def read_slowly(self, name):
        is_reading.set()
        may_go_on.wait(60)
        return read(self, name)

    def read_in_child():
        RowsReader._read = read
        assert len(dataset[[0]]) == 1

    monkeypatch.setattr(RowsReader, "_read", read_slowly)
    thread = threading.Thread(target=lambda: dataset[[0]])
    thread.start()
    assert is_reading.wait(60)
    child = multiprocessing.get_context("fork").Process(target=read_in_child)
    child.start()
    child.join(20)
    is_hanging = child.is_alive()
    child.kill()
    may_go_on.set()
    thread.join()
    assert not is_hanging
    assert child.exitcode == 0


def test_decoders_get_what_an_item_would_hold_also_of_rows_of_arrow():
    pytest.importorskip("pyarrow")
    raw = make("encoding", "bytes")
    names = ("text", "words", "inner")
    dataset = opened(GOLDEN / "rows", decoders=dict.fromkeys(names, lambda _: raw))
    sample = dataset[2]
    assert sample["text"] == "tëxt 2".encode()
    assert json.loads(sample["words"]) == ["a", "b"] * 2
    assert sample["inner"].startswith(struct.pack("<II", 8, 5) + number(2))


# -- what is a sample ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sample"),
    [
        (spec_of("builtins.tuple", [LEAF, LEAF], "null"), {"0": 1, "1": "a"}),
        (spec_of("builtins.list", [LEAF, LEAF], "null"), {"0": 1, "1": "a"}),
        (spec_of("collections.OrderedDict", [LEAF, LEAF], '["b", "a"]'), {"b": 1, "a": "a"}),
        (spec_of("collections.defaultdict", [LEAF, LEAF], DEFAULTS), {"b": 1, "a": "a"}),
        (spec_of("collections.defaultdict", [LEAF, LEAF], '["x", ["b", "a"]]'), {"b": 1, "a": "a"}),
        (spec_of("builtins.dict", [LEAF, LEAF], "[3, true]"), {"3": 1, "True": "a"}),
        (dict_of(x=dict_of(y=LEAF), z=LEAF), {"x": {"y": 1}, "z": "a"}),
        (dict_of(x=spec_of("builtins.dict", [LEAF, LEAF], '[1, "1"]')), {"x": {1: 1, "1": "a"}}),
        (
            dict_of(x=spec_of("builtins.dict", [LEAF, LEAF], "[null, 2.5]")),
            {"x": {None: 1, 2.5: "a"}},
        ),
        (dict_of(x=spec_of("builtins.tuple", [LEAF, LEAF], "null")), {"x": (1, "a")}),
        (dict_of(x=spec_of("builtins.list", [LEAF, LEAF], "null")), {"x": [1, "a"]}),
    ],
)
def test_samples_have_the_columns_that_their_items_are_made_of(tmp_path, spec, sample):
    write(tmp_path / "set", [[number(1), b"a"]] * 3, ["int", "str"], spec)
    assert list(opened(tmp_path / "set")) == [sample] * 3
    assert opened(tmp_path / "set")[1] == sample


def test_a_single_value_is_one_column(tmp_path):
    write(tmp_path / "set", [[b"a"], [b"b"]], ["str"], LEAF)
    assert list(opened(tmp_path / "set")) == [{"value": "a"}, {"value": "b"}]


def test_pickled_values_are_read_only_when_allowed(tmp_path):
    import pickle

    write(tmp_path / "set", [[pickle.dumps({1, 2})]], ["pickle"], dict_of(x=LEAF))
    with pytest.raises(UnsafeTypeError, match="allow_unsafe_types"):
        opened(tmp_path / "set")
    assert opened(tmp_path / "set", allow_unsafe_types=True)[0] == {"x": {1, 2}}


@pytest.mark.parametrize("kind", ["builtins.list", "builtins.tuple", "builtins.dict"])
def test_pickled_values_in_others_are_read_only_when_allowed(tmp_path, kind):
    import pickle

    inner = spec_of(kind, [LEAF, spec_of("builtins.list", [LEAF])], json.dumps(["a", "b"]))
    items = [[number(1), pickle.dumps({1, 2})]]
    write(tmp_path / "set", items, ["int", "pickle"], dict_of(x=inner))
    with pytest.raises(UnsafeTypeError, match=r"'x'.*allow_unsafe_types"):
        opened(tmp_path / "set")
    sample = opened(tmp_path / "set", allow_unsafe_types=True)[0]
    assert [{1, 2}] in (sample["x"].values() if kind == "builtins.dict" else sample["x"])


def test_serializers_of_users_give_bytes_when_asked_for(tmp_path):
    write(tmp_path / "set", [[b"any"]], ["mine:3"], dict_of(x=LEAF))
    with pytest.raises(ConfigError, match=r"'x'.*'mine:3'.*litdata:raw"):
        opened(tmp_path / "set")
    raw = StreamingDataset(remote=tmp_path / "set", format="litdata:raw")
    assert raw[0] == {"x": b"any"}


def test_the_head_of_a_chunk_may_be_missing_in_what_the_index_says_of_its_size(numbers):
    path = numbers / "index.json"
    index = json.loads(path.read_text())
    for chunk in index["chunks"]:  # as releases before 0.2.40 counted
        chunk["chunk_bytes"] -= 4 * (chunk["chunk_size"] + 2)
    path.write_text(json.dumps(index))
    assert len(list(opened(numbers))) == COUNT


# -- what is refused ------------------------------------------------------------------------------


def test_without_a_format_the_message_says_what_to_do(numbers):
    with pytest.raises(InvalidIndexError, match="format="):
        StreamingDataset(remote=str(numbers))


def test_an_index_of_ours_is_read_whatever_the_format(tmp_path):
    with MDSWriter(out=str(tmp_path / "mds"), columns={"id": "int"}) as out:
        out.write({"id": 1})
    assert opened(tmp_path / "mds")[0] == {"id": 1}


def test_without_its_index_a_set_is_not_read(numbers):
    (numbers / "index.json").unlink()
    with pytest.raises(NotFound, match=r"index\.json does not exist"):
        opened(numbers)
    (numbers / "index.json").write_text('{"chunks": [], "config": null, "updated_at": "1"}')
    with pytest.raises(InvalidIndexError, match=r"index\.json: it lists no chunks"):
        opened(numbers)


def test_writing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="format litdata can only be read"):
        Writer(out=tmp_path / "set", format="litdata", columns={"n": "int"})
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    "spec",
    [
        "litdata:block=0",
        f"litdata:block={1 << 30}",
        "litdata:block=²",
        "litdata:jpg",
        "litdata:raw=1",
        "litdata:,",
    ],
)
def test_unknown_options_are_refused(numbers, spec):
    with pytest.raises(ConfigError, match="none of"):
        StreamingDataset(remote=str(numbers), format=spec)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encryption": {"algorithm": "fernet", "level": "chunk"}}, "encrypted"),
        ({"compression": "lz4"}, "lz4"),
        ({"compression": "zstd", "compression_level": "page"}, "page"),
        ({"compression": "zstd", "compression_level": ["page"]}, "page"),
        ({"item_loader": "TemporalArrayLoader"}, "TemporalArrayLoader"),
        ({"item_loader": "ParquetLoader"}, "ParquetLoader"),
        ({"item_loader": "TokensLoader"}, "one array"),
        ({"format": "mds"}, "MDS"),
        ({"data_format": ["int", "no_header_numpy:15"]}, "15"),
        ({"data_format": ["int", "no_header_numpy:13"], "item_loader": None}, "first versions"),
        ({"data_format": ["int", "graph"]}, "graph"),
        ({"data_spec": json.dumps([1, spec_of("my.Point", [LEAF, LEAF])])}, r"my\.Point"),
        ({"data_spec": json.dumps([1, spec_of("builtins.dict", [], "[]")])}, "leaves|no values"),
        (
            {"data_spec": json.dumps([1, spec_of("builtins.dict", [LEAF, LEAF], '[1, "1"]')])},
            r"keys that would be one column: \[1, '1'\]",
        ),
    ],
)
def test_sets_that_cannot_be_read_are_refused(numbers, config, message):
    edit(numbers, **config)
    with pytest.raises((ConfigError, InvalidIndexError), match=message):
        opened(numbers)


def test_blocks_are_of_tokens(numbers):
    with pytest.raises(ConfigError, match="no tokens"):
        StreamingDataset(remote=str(numbers), format="litdata:block=4")


@pytest.mark.parametrize("value", [None, True, -1, 1 << 70, "x", [], [None], {}, [[]], "../x"])
def test_hostile_indexes_do_no_harm(numbers, value):
    path = numbers / "index.json"
    index = json.loads(path.read_text())
    changed = [{**index, key: value} for key in index]
    changed += [{**index, "config": {**index["config"], key: value}} for key in index["config"]]
    first, *others = index["chunks"]
    changed += [{**index, "chunks": [{**first, key: value}, *others]} for key in first]
    for hostile in changed:
        path.write_text(json.dumps(hostile))
        try:
            list(opened(numbers))
        except (ConfigError, DataError, StorageError):
            continue


# -- what is damaged --------------------------------------------------------------------------------


def damage(path, *, at, to):
    data = bytearray(path.read_bytes())
    data[at] = to
    path.write_bytes(bytes(data))


def test_a_leaf_of_a_wrong_size_is_named(numbers):
    begin = struct.unpack_from("<I", (numbers / "chunk-0-2.bin").read_bytes(), 4 + 4 * 3)[0]
    damage(numbers / "chunk-0-2.bin", at=begin, to=7)
    for read in (lambda d: d[19], list):
        with pytest.raises(CorruptShardError, match=r"chunk-0-2\.bin.*sample 3"):
            read(opened(numbers))


def test_a_leaf_that_another_one_took_from_is_named(numbers):
    begin = struct.unpack_from("<I", (numbers / "chunk-0-0.bin").read_bytes(), 4)[0]
    damage(numbers / "chunk-0-0.bin", at=begin, to=7)
    damage(numbers / "chunk-0-0.bin", at=begin + 4, to=7)
    with pytest.raises(CorruptShardError, match=r"chunk-0-0\.bin.*sample 0, column 'id'.*7 bytes"):
        opened(numbers)[0]


def test_a_value_that_cannot_be_decoded_is_named(numbers):
    damage(numbers / "chunk-0-1.bin", at=-1, to=0xFF)
    for read in (lambda d: d[15], list, lambda d: list(d.batches(5))):
        with pytest.raises(DecodeError, match=r"chunk-0-1\.bin.*sample 7, column 'text'.*UTF-8"):
            read(opened(numbers))


def test_chunks_that_were_cut_short_are_refused(numbers):
    path = numbers / "chunk-0-0.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptShardError, match=r"chunk-0-0\.bin"):
        opened(numbers)[0]


def test_where_rows_of_arrow_may_follow_the_items_the_error_says_how_to_read_them(numbers):
    path = numbers / "chunk-0-0.bin"
    path.write_bytes(path.read_bytes() + bytes(90))
    index = json.loads((numbers / "index.json").read_text())
    index["chunks"][0]["chunk_bytes"] += 90
    (numbers / "index.json").write_text(json.dumps(index))
    with pytest.raises(
        CorruptShardError, match=r"if its rows follow in Arrow, pass access='shard'"
    ):
        opened(numbers, access="range")[0]


def test_a_chunk_that_is_missing_is_named(tmp_path):
    shutil.copytree(GOLDEN / "files", tmp_path / "set")
    (tmp_path / "set" / "chunk-0-1.zstd.bin").unlink()
    with pytest.raises(InvalidIndexError, match=r"chunk-0-1\.zstd\.bin"):
        opened(tmp_path / "set")


@pytest.mark.parametrize("name", ["packed", "rows", "packed-rows", "tokens"])
def test_flipped_bits_do_no_harm(tmp_path, name):
    pytest.importorskip("pyarrow" if "rows" in name else "streamplug_zstandard")
    shutil.copytree(GOLDEN / name, tmp_path / "set")
    path = tmp_path / "set" / "chunk-0-0.bin"
    content = path.read_bytes()
    bits = st.sets(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=3)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bits)
    def check(flips):
        flipped = bytearray(content)
        for bit in flips:
            flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        try:
            assert len(list(opened(tmp_path / "set"))) == 7
        except DataError:
            return

    check()


@pytest.mark.parametrize("kind", ["no_header_numpy:²", "no_header_tensor:" + "9" * 5000])
@pytest.mark.parametrize("loader", ["PyTreeLoader", None])
def test_codes_that_are_no_numbers_are_refused(tmp_path, kind, loader):
    write(tmp_path / "set", [[number(1)]], [kind], LEAF, item_loader=loader)
    with pytest.raises(InvalidIndexError, match="code"):
        opened(tmp_path / "set")


@pytest.mark.parametrize("fields", [["int"], 7])
def test_types_that_are_damaged_are_not_those_of_rows(tmp_path, fields):
    types = {"id": {"type": "struct", "fields": fields}}
    write(tmp_path / "set", [[number(1)]], ["int"], dict_of(id=LEAF), types=types)
    assert opened(tmp_path / "set")[0] == {"id": 1}


def rows_of(folder, array, row, *damage):
    """Write a chunk of rows of one column, in which some bytes are replaced by others."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    whole, count = sink.getvalue().to_pybytes(), len(array)
    rows = whole.replace(*damage)
    assert rows != whole
    head = np.full(count + 2, 4 * (count + 2), "<u4")
    head[0] = count
    data = head.tobytes() + rows + struct.pack("<I", len(rows)) + b"LDARW01\0"
    write(folder, [[b""]], ["pickle"], dict_of(x=LEAF), types={"x": row})
    (folder / "chunk-0-0.bin").write_bytes(data)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"] = [{"chunk_bytes": len(data), "chunk_size": count, "filename": "chunk-0-0.bin"}]
    (folder / "index.json").write_text(json.dumps(index))


def int64(number):
    return struct.pack("<q", number)


def two(first, second):
    return struct.pack("<ii", first, second)


@pytest.mark.parametrize(
    ("row", "values", "damage"),
    [
        ("bool", [True] * 1001, (int64(126), int64(8))),
        ("int", list(range(1001)), (int64(8008), int64(8))),
        ("str", ["abc"] * 1001, (int64(4008), int64(8))),
        ("str", ["abc"] * 1001, (int64(3003), int64(8))),
        ("str", ["abc"] * 1001, (two(300, 303), two(300, 30))),
        ("str", ["abc"] * 1001, (two(3000, 3003), two(3000, 1 << 30))),
        ("str", ["abc"] * 1001, (two(0, 3), two(-8, 3))),
        ("list", ["abc"] * 1001, (two(300, 303), two(300, 1 << 30))),
        ("list", [[1, 2, 3]] * 1001, (two(300, 303), two(300, 1 << 30))),
        ("bool", [True] * 1001, (b"x\0\0\0", b"\xff\0\0\0")),
    ],
)
def test_rows_whose_memory_is_not_theirs_are_refused(tmp_path, row, values, damage):
    pa = pytest.importorskip("pyarrow")
    rows_of(tmp_path / "set", pa.array(values), row, *damage)
    with pytest.raises(CorruptShardError, match="column"):
        opened(tmp_path / "set")[0]


def test_items_that_would_fill_the_memory_are_refused(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    pytest.importorskip("streamplug_zstandard")
    folder, plain = tmp_path / "set", bytes((1 << 26) + 1)
    write(folder, [[b""]], ["bytes"], LEAF, compression="zstd", compression_level="sample")
    item = zstandard.ZstdCompressor().compress(struct.pack("<I", len(plain)) + plain)
    data = struct.pack("<3I", 1, 12, 12 + len(item)) + item
    (folder / "chunk-0-0.bin").write_bytes(data)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"][0]["chunk_bytes"] = len(data)
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptShardError, match="sample 0"):
        opened(folder)[0]


def chunk_of(folder, data, count):
    (folder / "chunk-0-0.bin").write_bytes(data)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"] = [{"chunk_bytes": len(data), "chunk_size": count, "filename": "chunk-0-0.bin"}]
    (folder / "index.json").write_text(json.dumps(index))


def refuses(folder):
    def act():
        with pytest.raises(
            CorruptShardError, match=r"takes \d+ bytes when decomp.* max_value_bytes="
        ):
            opened(folder)[0]

    return takes_less_of_the_system(40 << 20, act)


def test_frames_that_would_fill_the_memory_are_refused(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    pytest.importorskip("streamplug_zstandard")
    count, size = 40, 1 << 26
    write(tmp_path / "set", [[b""]], ["bytes"], LEAF, compression="zstd", compression_level="batch")
    plain = struct.pack("<I", size - 4) + bytes(size - 4)
    frame = zstandard.ZstdCompressor().compress(plain)
    edges = np.minimum(np.arange(count + 1) * size, (1 << 32) - 1).astype("<u4")
    begin = 24 + edges.nbytes + 24 * count
    table = [struct.pack("<IIQII", n, 1, begin, len(frame), size) for n in range(count)]
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, count, 1, count)
    chunk_of(tmp_path / "set", head + edges.tobytes() + b"".join(table) + frame, count)
    assert refuses(tmp_path / "set")
    assert len(opened(tmp_path / "set", max_value_bytes=1 << 32)[39]["value"]) == size - 4


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_rows_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch, codec, kind):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 1 << 20)
    sink, count = pa.BufferOutputStream(), 100
    texts = pa.array(["x" * (1 << 20)] * count)
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with make(sink, pa.schema({"x": texts.type}), options=options) as file:
        file.write_batch(pa.RecordBatch.from_arrays([texts], ["x"]))
    rows = sink.getvalue().to_pybytes()
    head = np.full(count + 2, 4 * (count + 2), "<u4")
    head[0] = count
    write(tmp_path / "set", [[b""]], ["pickle"], dict_of(x=LEAF), types={"x": "str"})
    chunk_of(
        tmp_path / "set", head.tobytes() + rows + struct.pack("<I", len(rows)) + b"LDARW01\0", count
    )
    monkeypatch.setattr(memory_bounds, "MAX_EXPANSION", 10)
    monkeypatch.setattr(Encoding, "max_value_bytes", 1 << 20)
    assert refuses(tmp_path / "set")
    assert opened(tmp_path / "set", max_value_bytes=1 << 30)[99] == {"x": "x" * (1 << 20)}


def lists_of_nulls(pa):
    return pa.ListArray.from_arrays(pa.array([*[0] * 200, 1 << 23], pa.int32()), pa.nulls(1 << 23))


def repeated_text(pa):
    return pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int8()), ["x" * (1 << 18)])


@pytest.mark.parametrize(
    ("kind", "make_array"),
    [
        ("list", lists_of_nulls),
        (
            "list",
            lambda pa: pa.FixedSizeListArray.from_arrays(pa.nulls(200 << 23), 1 << 23),
        ),
        ("str", repeated_text),
        (
            "list",
            lambda pa: pa.ListArray.from_arrays(
                pa.array(range(201), pa.int32()), repeated_text(pa)
            ),
        ),
    ],
    ids=["nulls", "nulls of one size", "text", "lists of text"],
)
def test_values_that_take_few_bytes_in_rows_are_refused(tmp_path, monkeypatch, kind, make_array):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(Encoding, "max_value_bytes", 1 << 20)
    sink, array = pa.BufferOutputStream(), make_array(pa)
    with pa.ipc.new_stream(sink, pa.schema({"x": array.type})) as file:
        file.write_batch(pa.RecordBatch.from_arrays([array], ["x"]))
    rows, count = sink.getvalue().to_pybytes(), len(array)
    head = np.full(count + 2, 4 * (count + 2), "<u4")
    head[0] = count
    data = head.tobytes() + rows + struct.pack("<I", len(rows)) + b"LDARW01\0"
    write(tmp_path / "set", [[b""]], ["pickle"], dict_of(x=LEAF), types={"x": kind})
    chunk_of(tmp_path / "set", data, count)
    monkeypatch.setattr(memory_bounds, "MAX_EXPANSION", 2)

    def act():
        with pytest.raises(DecodeError, match=r"column 'x': .* max_value_bytes="):
            next(iter(opened(tmp_path / "set", batch_size=count, shuffle=False).batches()))

    assert takes_less_of_the_system(30 << 20, act)
