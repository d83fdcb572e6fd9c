"""Sets in the formats of plugins become sets in others, and come back as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from streamplug_tools import Columns, Output, convert

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError, StreamplugError, WriterError

SIMPLE = {"id": "int", "name": "str", "score": "float32"}


def test_text_and_back(tmp_path, write, read):
    pytest.importorskip("streamplug_text")
    source = write(tmp_path / "source", range(50), SIMPLE)
    for format_ in ("json", "csv", "tsv", "xsv:;", "mds"):
        out = tmp_path / format_.replace(":;", "")
        written = convert(source, Output(out, format=format_, size_limit=500, processes=0))
        assert written.shards > 1
        source = out
    assert {name: np.asarray(v).dtype.kind for name, v in read(source).items()} == {
        "id": "i",
        "name": "U",
        "score": "f",
    }
    expected = [float(np.float32(n / 3)) for n in range(50)]
    assert read(source)["score"].tolist() == expected


def test_the_format_of_a_source_is_kept_with_its_separator(tmp_path, write, read):
    pytest.importorskip("streamplug_text")
    source = write(tmp_path / "source", range(5), SIMPLE)
    convert(source, Output(tmp_path / "a", format="xsv:;"))
    convert(tmp_path / "a", Output(tmp_path / "b"))
    assert b"0;name 0;0.0\n" in (tmp_path / "b/part-00000/shard.00000.xsv").read_bytes()


def test_text_refuses_what_is_no_text(tmp_path, write):
    pytest.importorskip("streamplug_text")
    source = write(tmp_path / "source", range(5))
    with pytest.raises(
        ConfigError, match=r"columns 'vector' \(ndarray:int16:3\), 'x' .*only str, int, fl"
    ):
        convert(source, Output(tmp_path / "out", format="json"))


def test_a_number_that_does_not_fit_names_its_column(tmp_path, write, read):
    pytest.importorskip("streamplug_text")
    source = write(tmp_path / "source", range(3), {"id": "str_int"}, lambda n: {"id": 10**n**2 * n})
    convert(source, Output(tmp_path / "json", format="json"))
    assert convert(tmp_path / "json", Output(tmp_path / "a", format="mds")).samples == 3
    convert(source, Output(tmp_path / "b"), columns=Columns(encodings={"id": "int32"}))
    huge = write(tmp_path / "huge", [1], {"id": "str_int"}, lambda n: {"id": 10**40})
    convert(huge, Output(tmp_path / "c", format="json"))
    with pytest.raises(WriterError, match="column 'id'"):
        convert(tmp_path / "c", Output(tmp_path / "d", format="mds"))


def test_archives_and_back(tmp_path, write, read):
    pytest.importorskip("streamplug_webdataset")
    source = write(tmp_path / "source", range(40))
    out = Output(tmp_path / "tars", format="webdataset", size_limit="20kb", processes=0)
    written = convert(source, out)
    assert written.samples == 40
    assert written.shards > 5
    keys = read(tmp_path / "tars", "__key__")["__key__"]
    assert keys == [f"{n:09d}" for n in range(40)]
    back = Columns(drop=["__key__"])
    convert(tmp_path / "tars", Output(tmp_path / "mds", format="mds"), columns=back)
    before, after = read(source), read(tmp_path / "mds")
    assert list(before) == list(after)
    for name, values in before.items():
        assert np.array_equal(values, after[name])


def test_archives_without_an_index_are_a_source(tmp_path, write, read):
    pytest.importorskip("streamplug_webdataset")
    columns = Columns(rename={"name": "txt", "id": "cls", "x": "bin"}, drop=["score", "vector"])
    source = write(tmp_path / "source", range(10))
    convert(source, Output(tmp_path / "tars", format="webdataset"), columns=columns)
    files = str(tmp_path / "tars/*/*.tar")
    stream = Stream(remote=files, format="webdataset:raw")
    names = Columns(encodings={"name": "bytes", "n": "bytes"}, rename={"txt": "name", "cls": "n"})
    convert(stream, Output(tmp_path / "mds", format="mds"), columns=names)
    assert read(tmp_path / "mds")["name"] == [f"name {n % 7}".encode() for n in range(10)]


def test_names_that_archives_cannot_have_are_refused_before_anything_is_written(tmp_path, write):
    pytest.importorskip("streamplug_webdataset")
    source = write(tmp_path / "source", [1], {"Id": "int"}, lambda n: {"Id": n})
    with pytest.raises(ConfigError, match=r"'Id'.*lower case.*rename the column"):
        convert(source, Output(tmp_path / "out", format="webdataset"))
    assert not (tmp_path / "out").exists()


def test_a_sample_that_lacks_a_value_is_told(tmp_path):
    pytest.importorskip("streamplug_webdataset")
    from streamplug_webdataset import WebDatasetWriter

    with WebDatasetWriter(tmp_path / "tars", columns={"txt": "str", "cls": "str_int"}) as writer:
        writer.write({"txt": "a", "cls": 1})
        writer.write({"txt": "b", "cls": None})
    with pytest.raises(WriterError, match="column 'cls': a sample has no value here"):
        convert(tmp_path / "tars", Output(tmp_path / "mds", format="mds"))
    convert(tmp_path / "tars", Output(tmp_path / "again"))  # which archives can have


def test_image_files_stay_what_they_are(tmp_path, read):
    pytest.importorskip("streamplug_image")
    pytest.importorskip("streamplug_webdataset")
    from PIL import Image

    from streamplug import Writer

    with Writer(columns={"image": "jpeg"}, out=tmp_path / "source") as writer:
        noise = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), np.uint8)
        for pixels in noise:
            writer.write({"image": Image.fromarray(pixels)})
    files = read(tmp_path / "source", stored=["image"])["image"]
    names = Columns(rename={"image": "jpg"})
    convert(tmp_path / "source", Output(tmp_path / "tars", format="webdataset"), columns=names)
    assert read(tmp_path / "tars", stored=["jpg"])["jpg"] == files
    stream = Stream(remote=str(tmp_path / "tars/part-00000"), format="webdataset:raw")
    asked = Columns(encodings={"jpg": "jpeg"}, select=["jpg"])
    convert(stream, Output(tmp_path / "back", format="mds"), columns=asked)
    assert read(tmp_path / "back", stored=["jpg"])["jpg"] == files


def test_parquet_and_back(tmp_path, write, read):
    pytest.importorskip("streamplug_parquet")
    columns = {"id": "int", "name": "str", "x": "bytes", "score": "float32", "third": "str_float"}

    def make(n):
        return {"id": n, "name": f"{n}", "x": b"\0" * n, "score": n / 3, "third": n / 3}

    source = write(tmp_path / "source", range(50), columns, make)
    convert(source, Output(tmp_path / "rows", format="parquet"))
    convert(tmp_path / "rows", Output(tmp_path / "mds", format="mds"))
    before, after = read(source), read(tmp_path / "mds")
    assert list(before) == list(after)
    for name, values in before.items():
        assert np.array_equal(values, after[name])


def test_a_float_of_text_keeps_its_digits_in_parquet(tmp_path, write, read):
    pytest.importorskip("streamplug_text")
    pytest.importorskip("streamplug_parquet")
    columns = {"id": "int", "third": "float64"}
    source = write(tmp_path / "source", range(5), columns, lambda n: {"id": n, "third": n / 3})
    convert(source, Output(tmp_path / "lines", format="json"))
    convert(tmp_path / "lines", Output(tmp_path / "rows", format="parquet"))
    assert read(tmp_path / "rows")["third"].tolist() == [n / 3 for n in range(5)]


def test_lists_of_one_size_become_arrays(tmp_path, read):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("streamplug_parquet")
    from pyarrow import parquet

    vectors = pa.array([[n, n / 2] for n in range(5)], pa.list_(pa.float32(), 2))
    parquet.write_table(pa.table({"v": vectors, "few": [None, 1, 2, 3, 4]}), tmp_path / "a.parquet")
    source = Stream(remote=str(tmp_path / "a.parquet"), format="parquet")
    with pytest.raises(ConfigError, match=r"column 'few' \(int64\?\).*few:json"):
        convert(source, Output(tmp_path / "mds", format="mds"))
    convert(
        source, Output(tmp_path / "mds", format="mds"), columns=Columns(encodings={"few": "json"})
    )
    assert read(tmp_path / "mds")["v"].tolist() == [[n, n / 2] for n in range(5)]
    assert read(tmp_path / "mds")["few"] == [None, 1, 2, 3, 4]


def test_files_that_are_only_read_become_another_format(tmp_path):
    pytest.importorskip("streamplug_text")
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    source = Stream(remote=str(tmp_path / "a.jsonl"), format="jsonl")
    with pytest.raises(ConfigError, match=r"can only be read.*format=, such as mds$"):
        convert(source, Output(tmp_path / "out"))
    assert convert(source, Output(tmp_path / "out", format="mds")).samples == 1


def samples_of(folder):
    dataset = StreamingDataset(local=str(folder), access="shard")
    return [dataset[number] for number in range(dataset.size)]


def test_arrays_and_lists_of_parquet_come_back_as_they_were(tmp_path):
    pytest.importorskip("streamplug_parquet")
    columns = {"a": "ndarray:int16", "f": "ndarray:float32:2,3", "n": "uint8", "s": "str"}
    with MDSWriter(columns=columns, out=str(tmp_path / "mds")) as out:
        for n in range(5):
            floats = np.arange(6, dtype=np.float32).reshape(2, 3) + n
            out.write({"a": np.arange(n, dtype=np.int16), "f": floats, "n": n, "s": f"{n}"})
    convert(tmp_path / "mds", Output(tmp_path / "pq", format="parquet", processes=0))
    convert(tmp_path / "pq", Output(tmp_path / "again", format="mds", processes=0))
    for old, new in zip(samples_of(tmp_path / "mds"), samples_of(tmp_path / "again"), strict=True):
        for name in columns:
            assert np.asarray(old[name]).dtype == np.asarray(new[name]).dtype
            assert np.array_equal(old[name], new[name])


@pytest.fixture
def table(tmp_path):
    """A Parquet file with lists, Boolean values and columns that MDS has no encoding for."""
    pytest.importorskip("streamplug_parquet")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    of_map = pa.map_(pa.string(), pa.int64())
    columns = {
        "ok": [True, False],
        "list": pa.array([[1, 300], []], pa.list_(pa.int32())),
        "flags": [[True], [False, True]],
        "square": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        "map": pa.array([[("a", 1)], []], of_map),
        "words": [["a"], ["b", "c"]],
    }
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    return Stream(remote=str(tmp_path / "table.parquet"), format="parquet")


def test_lists_of_numbers_become_arrays_and_bools_numbers(table, tmp_path):
    out = Output(tmp_path / "mds", format="mds", processes=0)
    convert(table, out, columns=Columns(select=["ok", "list", "flags"]))
    first, second = samples_of(tmp_path / "mds")
    assert (first["ok"], first["ok"].dtype, second["ok"]) == (1, np.uint8, 0)
    assert (first["list"].tolist(), first["list"].dtype) == ([1, 300], np.int32)
    assert (second["list"].shape, second["list"].dtype) == ((0,), np.int32)
    assert (second["flags"].tolist(), second["flags"].dtype) == ([0, 1], np.uint8)


def test_other_lists_become_arrays_where_that_is_asked_for(table, tmp_path):
    asked = Columns(
        select=["square", "list"], encodings={"square": "ndarray:float32", "list": "ndarray"}
    )
    convert(table, Output(tmp_path / "mds", format="mds", processes=0), columns=asked)
    first, second = samples_of(tmp_path / "mds")
    assert (first["square"].tolist(), first["square"].dtype) == ([[1, 2], [3, 4]], np.float32)
    assert (second["list"].tolist(), second["list"].dtype) == ([], np.int32)
    for spec, said in (
        ("list:ndarray:uint8", r"column 'list': .*300.* numbers that uint8 cannot hold"),
        ("words:ndarray", "no array of numbers|takes a numpy array"),
    ):
        name, _, encoding = spec.partition(":")
        wrong = Columns(select=[name], encodings={name: encoding})
        with pytest.raises(StreamplugError, match=said):
            convert(table, Output(tmp_path / name, format="mds", processes=0), columns=wrong)


def test_maps_of_parquet_are_written_as_maps_again(tmp_path):
    pytest.importorskip("streamplug_parquet")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    of_map = pa.map_(pa.string(), pa.int64())
    types = {
        "map": of_map,
        "keys": pa.map_(pa.int32(), pa.list_(pa.string())),
        "maps": pa.list_(pa.struct([("m", of_map)])),
        "array": pa.list_(pa.float32(), 2),
    }
    rows = [
        {"map": {"a": 1, "b": None}, "keys": {1: ["x"], 2: None}, "maps": [{"m": {"c": 3}}]},
        {"map": {}, "keys": {}, "maps": []},
        {"map": None, "keys": None, "maps": [{"m": None}, None]},
    ]
    rows = [{**row, "array": [n, 0.5]} for n, row in enumerate(rows)]
    pq.write_table(
        pa.table({name: pa.array([row[name] for row in rows], t) for name, t in types.items()}),
        tmp_path / "table.parquet",
    )
    source = Stream(remote=str(tmp_path / "table.parquet"), format="parquet")
    convert(source, Output(tmp_path / "pq", format="parquet", processes=0))
    [file] = (tmp_path / "pq").glob("*/shard.*.parquet")
    again = pq.read_table(file)
    assert again["map"].type.equals(of_map)
    assert again["maps"].type.value_type.field("m").type.equals(of_map)
    keys = again["keys"].type
    assert (keys.key_type, keys.item_type.value_type) == (pa.int32(), pa.string())
    assert again.select([*types]).to_pylist(maps_as_pydicts="strict") == rows
    # By way of JSON, whose keys are text.
    as_json = Columns(select=["map", "maps"], encodings={"map": "json", "maps": "json"})
    convert(source, Output(tmp_path / "mds", format="mds", processes=0), columns=as_json)
    specs = {
        "map": "map<string, int64>?",
        "maps": "list<struct<m: map<string, int64>>>",
    }
    back = Output(tmp_path / "back", format="parquet", processes=0)
    convert(tmp_path / "mds", back, columns=Columns(encodings=specs))
    [file] = (tmp_path / "back").glob("*/shard.*.parquet")
    found = pq.read_table(file).to_pylist(maps_as_pydicts="strict")
    assert found == [{name: row[name] for name in specs} for row in rows]
    wrong = Columns(select=["map"], encodings={"map": "map<int8, int64>?"})
    with pytest.raises(
        WriterError, match=r"row 0: .*column 'map': takes values of int8 in .*'key'"
    ):
        convert(tmp_path / "mds", replace(back, out=tmp_path / "wrong"), columns=wrong)


def test_all_columns_that_cannot_be_written_are_named_at_once(table, tmp_path):
    with pytest.raises(ConfigError) as caught:
        convert(table, Output(tmp_path / "mds", format="mds"))
    for said in (
        "columns 'map' (map<string, int64>?), 'square' (list<list<int64>>), 'words' (list<string>): ",
        "(map:json,square:json,words:json), or leave the columns out",
    ):
        assert said.replace("columns 'map'", "'map'") in str(caught.value)
