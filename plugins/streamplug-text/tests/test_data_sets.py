"""Data sets of text are read in every way that others are."""

from __future__ import annotations

import json
import re
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_text import CSVWriter, JSONLWriter, JSONWriter, TSVWriter, XSVWriter

from streamplug import MDSWriter, Stream, StreamingDataset, Writer
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DecodeError,
    EncodeError,
    InvalidIndexError,
    UnknownNameError,
)
from streamplug.index import parse_index
from streamplug.interfaces import Encoding

COLUMNS = {"id": "int", "text": "str", "ratio": "float"}
WRITERS = {
    "json": (JSONLWriter, {}),
    "csv": (CSVWriter, {}),
    "tsv": (TSVWriter, {"newline": "\r\n"}),
    "xsv": (XSVWriter, {"separator": "|"}),
}


def samples(count, first=0):
    return [
        {"id": i, "text": f"naïve {i} " + "x" * (i % 7), "ratio": i / 3}
        for i in range(first, first + count)
    ]


def write(out, kind, rows, **settings):
    writer, marks = WRITERS[kind]
    with writer(out=out, columns=COLUMNS, **marks, **settings) as written:
        for row in rows:
            written.write(row)


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


def test_what_is_written_is_read(tmp_path, kind):
    write(tmp_path, kind, samples(100), size_limit=500, hashes=["sha1"])
    dataset = StreamingDataset(
        local=str(tmp_path), shuffle=True, batch_size=4, validate_hash="sha1"
    )
    assert by_id(dataset) == samples(100)
    assert dataset[17] == samples(1, 17)[0]
    assert [row["id"] for row in dataset[[99, 3, 3]]] == [99, 3, 3]
    assert StreamingDataset(local=str(tmp_path), columns=["text"])[5] == {
        "text": samples(6)[5]["text"]
    }


def test_batches_are_written_as_samples_are(tmp_path, kind):
    write(tmp_path / "single", kind, samples(100), size_limit=500)
    writer, marks = WRITERS[kind]
    rows = samples(100)
    with writer(out=tmp_path / "batch", columns=COLUMNS, size_limit=500, **marks) as out:
        out.write_batch(
            {
                "id": np.arange(100),
                "text": [row["text"] for row in rows],
                "ratio": np.arange(100) / 3,
            }
        )
        out.write_batch({"id": [], "text": [], "ratio": []})
    names = sorted(path.name for path in (tmp_path / "single").iterdir())
    assert len(names) > 10
    assert names == sorted(path.name for path in (tmp_path / "batch").iterdir())
    for name in names:
        assert (tmp_path / "single" / name).read_bytes() == (tmp_path / "batch" / name).read_bytes()


@pytest.mark.parametrize("kind", ["json", "csv", "xsv"])
@given(st.data())
def test_a_sample_gives_the_same_bytes_by_the_quick_way_and_with_care(tmp_path_factory, kind, data):
    writer, marks = WRITERS[kind]
    columns = {"id": "int", "100%{x}": "str", "ratio": "float"}
    with writer(out=tmp_path_factory.mktemp("set"), columns=columns, **marks) as out:
        rows = out._rows
        numbers = st.floats() | st.sampled_from([0.0, -0.0, 1e-4, -1e-4, 1e16, -1e16, 9e15, 1e-5])
        sample = {
            "id": data.draw(st.integers()),
            "100%{x}": data.draw(st.text('a,|"é\n{}%\ud800', max_size=6)),
            "ratio": data.draw(numbers),
        }
        try:
            expected = rows.encode(sample)
        except EncodeError as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                rows.encode_pieces(sample)
        else:
            parts, size = rows.encode_pieces(sample)
            assert (b"".join(parts), size) == (expected, len(expected))


def test_compressed_shards_come_through_a_cache(tmp_path, kind):
    write(tmp_path / "far", kind, samples(100), size_limit=500, compression="gz", hashes=["sha1"])
    dataset = StreamingDataset(
        remote=str(tmp_path / "far"), local=str(tmp_path / "near"), cache_limit=8 << 10
    )
    assert by_id(dataset) == by_id(dataset) == samples(100)


def test_samples_are_read_by_ranges(tmp_path, kind):
    write(tmp_path / "far", kind, samples(100), size_limit=500)
    dataset = StreamingDataset(
        remote=(tmp_path / "far").as_uri(),
        local=str(tmp_path / "near"),
        access="range",
        batch_size=4,
        shuffle=True,
    )
    assert by_id(dataset) == samples(100)
    assert dataset[42] == samples(1, 42)[0]
    assert not list((tmp_path / "near").glob("shard*"))


def test_a_mixture_with_mds_continues_where_it_stopped(tmp_path, kind):
    columns = {"id": "int", "text": "str", "ratio": "str_float"}
    with MDSWriter(out=tmp_path / "mds", columns=columns, size_limit=700) as out:
        for row in samples(60):
            out.write(row)
    write(tmp_path / kind, kind, samples(90, 60), size_limit=500)

    def mixture():
        streams = [
            Stream(local=str(tmp_path / "mds"), proportion=0.5),
            Stream(local=str(tmp_path / kind), proportion=0.5),
        ]
        return StreamingDataset(streams=streams, shuffle=True, batch_size=4, epoch_size=120)

    dataset = mixture()
    whole = [list(dataset), list(dataset)]
    dataset = mixture()
    list(dataset)
    begun = list(islice(dataset, 48))
    state = json.loads(json.dumps(dataset.state_dict()))
    continued = mixture()
    continued.load_state_dict(state)
    rest = list(continued)
    assert begun + rest == whole[1] != whole[0]
    assert len(rest) == 120 - 48
    of_mds = sum(row["id"] < 60 for row in whole[0])
    assert of_mds == 60


class Loud(Encoding):
    """Decodes as another does, and more."""

    def __init__(self, inner):
        self.inner = inner

    def encode(self, value):
        raise NotImplementedError

    def decode(self, data):
        value = self.inner.decode(data)
        return value.upper() if isinstance(value, str) else -value


def test_columns_are_decoded_as_the_user_asks(tmp_path, kind):
    rows = samples(50)
    if kind == "json":
        rows[7]["text"] = "half of a pair: \ud800"
    write(tmp_path, kind, rows, size_limit=500)
    dataset = StreamingDataset(local=str(tmp_path), decoders={"text": Loud, "ratio": Loud})
    loud = [{**row, "text": row["text"].upper(), "ratio": -row["ratio"]} for row in rows]
    assert by_id(dataset) == [dataset[i] for i in range(50)] == loud


def test_shards_without_samples_are_read(tmp_path, kind):
    write(tmp_path, kind, samples(3))
    index = json.loads((tmp_path / "index.json").read_text())
    (full,) = index["shards"]
    header = 0 if kind == "json" else (tmp_path / f"shard.00000.{kind}").read_bytes().index(b"0")
    meta = (tmp_path / f"shard.00000.{kind}.meta").read_bytes()
    files = {
        "raw_data": (tmp_path / f"shard.00000.{kind}").read_bytes()[:header],
        "raw_meta": np.array([0, header], "<u4").tobytes() + meta[meta.index(b"{") :],
    }
    empty = {**full, "samples": 0}
    for key, data in files.items():
        name = f"empty.{key}"
        (tmp_path / name).write_bytes(data)
        empty[key] = {"basename": name, "bytes": len(data), "hashes": {}}
    (tmp_path / "index.json").write_text(json.dumps({**index, "shards": [empty, full]}))
    dataset = StreamingDataset(local=str(tmp_path))
    assert list(dataset) == samples(3)
    assert len(dataset._reader.open(0).reader) == 0


def test_a_long_index_is_read(tmp_path, kind):
    write(tmp_path, kind, samples(500), size_limit=120, hashes=["sha1"])
    assert (tmp_path / "index.json").stat().st_size > 2**16  # from there on it is read by patterns
    data = (tmp_path / "index.json").read_bytes()
    parsed = parse_index(data, "here")
    assert parsed.size == 500
    assert len(parsed) > 150
    assert by_id(StreamingDataset(local=str(tmp_path))) == samples(500)


def test_the_general_writer_takes_them_by_name(tmp_path):
    for spec in ("json", "jsonl", "csv", "tsv", "xsv:;"):
        folder = tmp_path / spec[:5]
        with Writer(out=folder, format=spec, columns={"n": "int", "text": "str"}) as out:
            out.write({"n": 1, "text": "one"})
        assert StreamingDataset(local=str(folder))[0] == {"n": 1, "text": "one"}
    assert (tmp_path / "xsv:;" / "shard.00000.xsv").read_text() == "n;text\n1;one\n"
    assert JSONWriter is JSONLWriter


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("xsv", "no separator of its own"),
        ("xsv:", "expected some text"),
        ("xsv:\n", "one has the other in it"),
        ("csv:;", "expected COLUMN=TYPE"),
        ("csv:n=int", "give columns= instead"),
        ("plain-csv", "plain-csv can only be read"),
        ("json:x", "takes no argument"),
    ],
)
def test_marks_without_a_meaning_are_refused(tmp_path, spec, reason):
    with pytest.raises(ConfigError, match=reason):
        Writer(out=tmp_path / "set", format=spec, columns={"n": "int"})
    assert not (tmp_path / "set").exists()


def test_other_encodings_are_refused(tmp_path, kind):
    writer, marks = WRITERS[kind]
    with pytest.raises(UnknownNameError, match=r"'image'.*'jpeg'.*str, int, float"):
        writer(out=tmp_path / "set", columns={"image": "jpeg"}, **marks)
    with pytest.raises(ConfigError, match="writes one format"):
        writer(out=tmp_path / "set", columns={"a": "str"}, format="mds", **marks)
    with pytest.raises(ConfigError, match="newline"):
        writer(out=tmp_path / "set", columns={"a": "str"}, **{**marks, "newline": None})


def test_names_of_columns_that_are_not_utf8_are_refused(tmp_path, kind):
    writer, marks = WRITERS[kind]
    with pytest.raises(ConfigError, match="names of columns are what UTF-8 can hold"):
        writer(out=tmp_path / "set", columns={"\ud800": "str", "a": "int"}, **marks)
    assert not (tmp_path / "set").exists()


# -- what is damaged -----------------------------------------------------------------------


def damage(folder, kind, old, new):
    """Change some bytes of the first shard in place; all sizes stay."""
    path = folder / f"shard.00000.{kind}"
    data = path.read_bytes()
    assert len(old) == len(new)
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize(
    ("kind", "old", "new", "error", "reason"),
    [
        ("json", b'"id": 13', b'"id": "3', CorruptShardError, "not JSON"),
        ("json", b'"id": 13', b'"id":"3"', DecodeError, "column 'id': it is an int, got str: '3'"),
        ("json", b'"id": 13', b'"if": 13', DecodeError, "column 'id': missing"),
        ("json", b" 13 x", b" \xff3 x", DecodeError, "not UTF-8"),
        ("json", b'{"id": 13', b'["id", 13', CorruptShardError, "not JSON"),
        ("csv", b"\n13,", b"\n1x,", DecodeError, "column 'id': not int as text: '1x'"),
        (
            "csv",
            b"\n13,",
            b"\n133",
            CorruptShardError,
            "it has 2 fields, the index names 3 columns",
        ),
        ("csv", b"\n13,4.", b"\n13,,.", CorruptShardError, "it has 4 fields"),
        ("csv", b" 13 x", b" \xff3 x", DecodeError, "column 'text': not UTF-8"),
        ("csv", b"\n13,", b"\n1\n,", CorruptShardError, r"it has '\\n' in it"),
        ("tsv", b"\r\n14\t", b"\r\r14\t", CorruptShardError, r"does not end with '\\r\\n'"),
    ],
)
def test_damaged_samples_are_named(tmp_path, kind, old, new, error, reason):
    write(tmp_path, kind, samples(20))
    damage(tmp_path, kind, old, new)
    dataset = StreamingDataset(local=str(tmp_path), batch_size=4)
    where = rf"(?s)shard 0 \(.*shard.00000.{kind}.*sample 13.*"
    with pytest.raises(error, match=where + reason):
        dataset[13]
    with pytest.raises(error, match=where + reason):
        dataset[list(range(20))]
    assert [dataset[i] for i in range(13)] == samples(13)


def test_a_header_of_other_columns_is_refused(tmp_path):
    write(tmp_path, "csv", samples(3))
    damage(tmp_path, "csv", b"id,ratio,text\n", b"id,ratic,text\n")
    with pytest.raises(CorruptShardError, match="its header does not name the columns"):
        StreamingDataset(local=str(tmp_path))[0]


@pytest.mark.parametrize(
    ("kind", "key", "value", "reason"),
    [
        ("json", "columns", {}, "at least one"),
        ("json", "columns", ["id"], "must map names to encodings"),
        ("json", "newline", "|", "white space"),
        ("xsv", "separator", "", "expected some text"),
        ("xsv", "newline", "||", "one has the other in it"),
        ("csv", "column_encodings", ["int"], "as many"),
        ("csv", "raw_meta", None, "raw_meta is missing"),
        ("csv", "samples", 1 << 20, "cannot lie in a"),
    ],
)
def test_indexes_that_make_no_sense_are_refused(tmp_path, kind, key, value, reason):
    write(tmp_path, kind, samples(3))
    index = json.loads((tmp_path / "index.json").read_text())
    index["shards"][0][key] = value
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidIndexError, match=reason):
        StreamingDataset(local=str(tmp_path))


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_a_misspelt_keyword_is_told_with_the_one_that_was_meant(tmp_path, kind):
    writer, options = WRITERS[kind]
    columns = {"n": "int"}
    with pytest.raises(TypeError, match=r"\(newlin=…\): no such argument. Did you mean 'newline'"):
        writer(columns=columns, out=tmp_path, newlin="\n", **options)
    with pytest.raises(TypeError, match=r"\(colums=…\): no such argument. Did you mean 'columns'"):
        writer(colums=columns, out=tmp_path, **options)
