"""What is found in files of lines is what Python's own modules find there."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from streamplug_files import scanner as scanning
from streamplug_testing.equality import same
from streamplug_testing.memory_shard import MemoryFile
from streamplug_text import plain, plain_jsonl, split
from streamplug_text.quotes import record_ends

from streamplug import Stream, StreamingDataset
from streamplug.errors import ConfigError, CorruptShardError, DataError, InvalidIndexError
from streamplug.index.builder import make_encoding
from streamplug.interfaces import ShardFile, ShardInfo
from streamplug.plugin import make
from streamplug.transfer import tempdir as temporary
from streamplug.types import FileInfo


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Records lie across the ends of blocks, and few are read as many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_BLOCK", 16)
        patch.setattr(split, "_MIN_BATCH_SAMPLES", 2)
        yield


def opened(data, spec):
    """Return a reader of a file in memory, its columns, and a head of the same."""
    scanned = make("format", spec).scan(MemoryFile(data))
    format_ = make("format", scanned.entry["format"])
    files = {"data": data, **scanned.files}
    infos = {role: ShardFile(FileInfo(role, len(each), {}), None) for role, each in files.items()}
    for role, each in files.items():
        format_.check(scanned.samples, role, len(each))
    columns = format_.columns(
        scanned.entry, lambda name, spec: make_encoding(name, spec, format_.encodings)
    )
    arrays = {role: np.frombuffer(each, np.uint8) for role, each in files.items()}
    info = ShardInfo(0, scanned.samples, infos)
    start, stop = format_.header_range(info)
    head = format_.open_header(info, arrays["meta"][start:stop], columns)
    return format_.open(info, arrays, columns), columns, head


def read(data, spec):
    """Return the samples of a file, read one by one, all at once, and by ranges."""
    reader, columns, head = opened(data, spec)
    rows = [reader.row(number, columns) for number in range(len(reader))]
    numbers = np.arange(len(reader))[::-1].copy()
    ranges = head.byte_ranges(numbers)
    pieces = [data[start:stop] for start, stop in ranges.tolist()]
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    buffer = np.frombuffer(b"".join(pieces), np.uint8)
    for taken in (
        reader.take(numbers, columns),
        head.take(numbers, buffer, np.cumsum(sizes) - sizes, columns),
    ):
        names = [column.name for column in columns]
        assert same([dict(zip(names, row)) for row in zip(*taken)][::-1], rows)
    return rows


# -- JSON lines -----------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["a", "b", "é", 'q"', "", "c d"])


@given(
    st.lists(st.dictionaries(KEYS, VALUES, min_size=1), min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\n\n", " \r\n\n"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_json_lines_are_what_json_reads(rows, newline, mark, end, ascii_):
    text = newline.join(json.dumps(row, ensure_ascii=ascii_) for row in rows) + newline * end
    with suppress(UnicodeEncodeError):
        data = plain.BOM * mark + text.encode()
        names = sorted({name for row in rows for name in row})
        expected = [{name: row.get(name) for name in names} for row in rows]
        assert same(read(data, "jsonl"), expected)


@given(st.lists(st.text('{}[]",:a1.e- \\', max_size=12), max_size=6))
def test_json_lines_are_refused_if_json_refuses_them(lines):
    """Each line fails alone; together they are no JSON lines if most of them fail."""
    data = "\n".join(['{"a": 1}', *lines]).encode()
    rows = [line for line in data.decode().split("\n") if line.strip()]
    bad = {number for number, row in enumerate(rows) if not is_object(row)}
    if 2 * len(bad) > len(rows):
        message = rf"^not JSON lines: {len(bad)} of {len(rows)} lines .*; line \d: not "
        with pytest.raises(CorruptShardError, match=message):
            opened(data, "jsonl")
        return
    reader, columns, _ = opened(data, "jsonl")
    assert len(reader) == len(rows)
    for number in range(len(rows)):
        if number in bad:
            with pytest.raises(CorruptShardError, match=rf"^sample {number} \(line \d\): not "):
                reader.row(number, columns)
        else:
            reader.row(number, columns)


def is_object(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n\n{"a": }\n', r"\(line 3\): not JSON: Expecting value at column 7: "),
        (b'{"a": 1}\n\x0c\n{"a": 2}\n', r"\(line 2\): not JSON: Expecting value"),
        (b'{"a": 1}\n[1]\n', r"\(line 2\): not a JSON object"),
        (b'{"a": 1}\n{"a": 1} {"a": 2}\n', r"\(line 2\): not JSON: Extra data at column 10"),
        (b'{"a": 1}\n{"a": 1', r"\(line 2\): not JSON"),
        (b'{"a": 1}\n{"a":\n1}\n', "2 of 3 lines are no JSON objects; line 2: not JSON"),
        (b'[\n{"a": 1},\n{"a": 1}\n]\n', "3 of 4 lines are no JSON objects; line 1: not JSON"),
        (b"\n" + b"\n".join(b'{"k%d": 0}' % n for n in range(11)), "more than 10 keys"),
    ],
)
def test_damaged_json_lines_are_named(monkeypatch, data, message):
    monkeypatch.setattr(plain_jsonl, "_MOST_COLUMNS", 10)
    with pytest.raises(CorruptShardError, match=message):
        read(data, "jsonl")


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
            "a pointer of Git LFS",
        ),
        (b"\xef\xbb\xbf\n<HTML lang=en>\n<body>Sign in</body>\n</HTML>\n", "an HTML page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (gzip.compress(b'{"a": 1}\n', mtime=0), "gzip data"),
    ],
)
def test_other_files_are_no_text(format_, content, found):
    with pytest.raises(CorruptShardError, match=f"it is {found}.*, and no text of records"):
        opened(content, format_)


@pytest.mark.parametrize("header", ["PAR1,BZh,PK", "BZh9,version"])
def test_names_of_columns_are_no_mark_of_other_files(header):
    assert len(read(f"{header}\n{header.lower()}\n".encode(), "csv")) == 1


def test_a_bad_line_of_json_is_a_sample_that_others_can_replace(tmp_path):
    lines = [f'{{"n": {n}}}' for n in range(40)]
    lines[7] = '{"n": '
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    dataset = StreamingDataset(
        local=tmp_path, format="jsonl", batch_size=10, on_error="substitute", max_errors=1
    )
    seen = np.concatenate([batch["n"] for batch in dataset.batches()])
    assert len(seen) == 40
    assert set(seen.tolist()) == set(range(40)) - {7}
    with pytest.raises(CorruptShardError, match=r"data\.jsonl.*line 8"):
        dataset[7]


def test_what_is_no_utf8_names_sample_line_and_place():
    reader, columns, _ = opened(b'\n{"a": 1}\n\n{"a": "\xff"}\n', "jsonl")
    with pytest.raises(DataError, match=r"sample 1 \(line 4\): not UTF-8: .* at byte 7"):
        reader.row(1, columns)
    with pytest.raises(DataError, match=r"sample 1 \(line 4\)"):
        reader.take(np.arange(2), columns)


def test_files_of_one_set_have_the_columns_of_all():
    united = make("format", "jsonl").merge_entries(
        [{"columns": ["b", "c"], "version": 2}, {"columns": ["a", "b"], "version": 2}]
    )
    assert united == {"columns": ["a", "b", "c"], "version": 2}


# -- CSV ------------------------------------------------------------------------------------

CELLS = st.text('ab",;\r\n\té|', max_size=6)


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8
        )
    ),
    st.sampled_from(["csv", "tsv", "xsv:;"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.booleans(),
    st.booleans(),
)
def test_csv_is_what_the_csv_module_reads(rows, spec, newline, quoting, mark, end):
    separator = {"csv": ",", "tsv": "\t", "xsv:;": ";"}[spec]
    assume(len(set(rows[0])) == len(rows[0]))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator=newline, quoting=quoting)
    writer.writerows(rows)
    text = out.getvalue()
    text = text if end else text.removesuffix(newline)
    again = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    assume(again == rows)
    data = plain.BOM * mark + text.encode()
    assert read(data, spec) == [dict(zip(rows[0], row)) for row in rows[1:]]


@given(st.text('a",\n', max_size=40), st.integers(0, 40))
def test_records_end_where_the_csv_module_says(text, cut):
    """Also where quotes are nothing but characters, and however it is cut into blocks."""
    data = text.encode() + b"\n"
    ends = record_ends(data, b",").tolist()
    begins = [0, *ends][: len(ends)]
    records = [data[begin:end].decode() for begin, end in zip(begins, ends)]
    reader = csv.reader(io.StringIO(data.decode(), newline=""))
    rows = list(reader)
    if not _closed(data.decode()):
        rows = rows[:-1]
    assert [next(csv.reader(io.StringIO(record, newline=""))) for record in records] == rows
    part = record_ends(data[:cut], b",").tolist()
    assert part == [end for end in ends if end <= cut]


def _closed(text):
    """Say whether no quote is open at the end."""
    return bool(re.fullmatch(r'(?:(?:"(?:[^"]|"")*"(?!")[^,\n]*|[^",\n][^,\n]*|)[,\n])*', text))


def test_values_have_the_types_that_are_given():
    data = b"id,share,text\n1,0.5,1\n-2,inf,\n"
    assert read(data, "csv:id=int,share=float") == [
        {"id": 1, "share": 0.5, "text": "1"},
        {"id": -2, "share": float("inf"), "text": ""},
    ]
    with pytest.raises(ConfigError, match=r"types are given for \['ID'\], but line 1"):
        read(data, "csv:ID=int")
    with pytest.raises(DataError, match=r"sample 1 \(line 3\): column 'id': not int as text: 'x'"):
        read(b"id\n1\nx\n", "csv:id=int")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no line that names the columns"),
        (b"\n\n", "no line that names the columns"),
        (b"a,b,a\n", "line 1 names a column twice"),
        (b'a,b\n1,"2\n3,4\n', "line 2: .*a quote is not closed"),
        (b'a,b\n1,"2\n"\n3,4,5\n', r"sample 1 \(line 4\): it has 3 fields, the index names 2"),
        (b"a,b\n1,2\n\n3\n4,5\n", r"sample 1 \(line 4\): it has 1 fields"),
        (b"a,b\n1,2\n3,\xff\n", r"sample 1 \(line 3\): column 'b': not UTF-8"),
        (b"a,b\n1,2\r3,4\n", r"sample 0 \(line 2\): an end of line that is not in quotes"),
        (b'a,b\n1,"2"\r3,4\n', r"sample 0 \(line 2\): an end of line that is not in quotes"),
    ],
)
def test_damaged_csv_is_named(data, message):
    with pytest.raises(DataError, match=message):
        read(data, "csv")


def test_a_header_alone_is_no_samples():
    assert read(b"a,b", "csv") == []


def test_files_of_other_columns_are_no_one_set():
    entries = [{"column_names": ["a", "b"]}, {"column_names": ["b", "a"]}]
    with pytest.raises(InvalidIndexError, match=r"\['a', 'b'\], another \['b', 'a'\]"):
        make("format", "csv").merge_entries(entries)


def test_streams_of_files_with_the_columns_in_another_order_are_batched_together(tmp_path):
    streams = []
    for number, text in enumerate(("a,b\n1,2\n", "b,a\n4,3\n")):
        (tmp_path / f"{number}.csv").write_text(text)
        streams.append(Stream(remote=str(tmp_path / f"{number}.csv"), format="csv"))
    dataset = StreamingDataset(streams=streams, batch_size=2)
    assert list(dataset.batches()) == [{"a": ["1", "3"], "b": ["2", "4"]}]


def test_separators_of_several_bytes_are_refused():
    for spec, reason in (("xsv:é", "a single byte"), ('xsv:"', "no quote"), ("xsv", "a separator")):
        with pytest.raises(ConfigError, match=reason):
            make("format", spec).scan(MemoryFile(b"a\n"))


# -- what is not trusted --------------------------------------------------------------------


@given(st.data(), st.sampled_from(["jsonl", "csv"]))
def test_damage_beside_a_file_is_noticed_or_does_no_harm(data, spec):
    content = {"jsonl": b'{"a": 1}\n{"a": 2}\n', "csv": b"a,b\n1,2\n3,4\n"}[spec]
    scanned = make("format", spec).scan(MemoryFile(content))
    meta = bytearray(scanned.files["meta"])
    for at in data.draw(st.lists(st.integers(0, len(meta) - 1), min_size=1, max_size=3)):
        meta[at] = data.draw(st.integers(0, 255))
    meta = meta[: data.draw(st.integers(0, len(meta)))]
    format_ = make("format", scanned.entry["format"])
    files = {"data": content, "meta": bytes(meta)}
    infos = {role: ShardFile(FileInfo(role, len(each), {}), None) for role, each in files.items()}
    columns = format_.columns(
        scanned.entry, lambda name, spec: make_encoding(name, spec, format_.encodings)
    )
    arrays = {role: np.frombuffer(each, np.uint8) for role, each in files.items()}
    with suppress(DataError):
        format_.check(2, "meta", len(meta))
        reader = format_.open(ShardInfo(0, 2, infos), arrays, columns)
        reader.take(np.arange(2), columns)


def test_places_of_large_files_are_wide():
    starts = [np.array([0, 5, 1 << 32], np.int64)]
    size = (1 << 32) + 7
    meta = np.frombuffer(plain.packed(starts, size), np.uint8)
    assert plain._unpacked(meta, 3, size).tolist() == [0, 5, 1 << 32, size]  # type: ignore[attr-defined]
    assert len(plain.packed([np.arange(3)], 1 << 20)) == 24 + 4 * 4


@pytest.mark.parametrize(
    "entry",
    [
        {"format": "plain-jsonl", "columns": {"a": "json"}},
        {"format": "plain-jsonl", "columns": ["a", "a"]},
        {"format": "plain-jsonl", "columns": []},
        {"format": "plain-csv", "column_names": ["a"], "column_encodings": ["str"]},
        {"format": "plain-csv", "column_names": ["a"], "column_encodings": [], "separator": ","},
        {
            "format": "plain-csv",
            "column_names": ["a"],
            "column_encodings": ["str"],
            "separator": '"',
        },
    ],
)
def test_entries_that_are_none_are_refused(entry):
    with pytest.raises(InvalidIndexError):
        make("format", entry["format"]).columns(entry, make_encoding)


def test_a_file_is_decompressed_to_where_the_next_start_removes_it(tmp_path, monkeypatch):
    places, unpack = [], scanning._decompress

    def watched(stored, path, compression):
        places.append(path)
        unpack(stored, path, compression)

    monkeypatch.setattr(scanning, "_decompress", watched)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert StreamingDataset(remote=str(tmp_path / "set"), format="csv").size == 1
    [place] = places
    assert place.parent.parent == temporary.temp_root()
    assert not place.exists()
