from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from streamplug.errors import (
    ConfigError,
    InvalidIndexError,
    TruncatedIndexError,
    UnknownNameError,
)
from streamplug.index import INDEX_NAME, file_entry, format_index, parse_index
from streamplug.types import FileInfo

WHERE = "/data/set/index.json"


def shard(number: int = 0, **changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "column_encodings": ["int", "str"],
        "column_names": ["id", "text"],
        "column_sizes": [8, None],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": f"shard.{number:05d}.mds", "bytes": 1000, "hashes": {}},
        "samples": 10 + number,
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }
    return {**entry, **changes}


def index(*entries: Any, **top: Any) -> bytes:
    return json.dumps({"shards": list(entries), "version": 2, **top}).encode()


def refused(data: bytes, error: type[Exception] = InvalidIndexError) -> str:
    with pytest.raises(error) as caught:
        parse_index(data, WHERE)
    assert type(caught.value) in {error, TruncatedIndexError}
    assert WHERE in str(caught.value)
    return str(caught.value)


def test_an_index_is_read_into_columns():
    found = parse_index(index(shard(0), shard(1), shard(2)), WHERE)
    assert len(found) == 3
    assert found.samples.tolist() == [10, 11, 12]
    assert found.starts.tolist() == [0, 10, 21, 33]
    assert found.starts.dtype == np.int64
    assert (found.size, found.raw_bytes, found.compressed) == (33, 3000, False)
    assert len(found.schemas) == 1
    info = found.shard(2)
    assert (info.number, info.samples) == (2, 12)
    assert info.files["data"].raw == FileInfo("shard.00002.mds", 1000, {})
    assert info.files["data"].zip is None
    assert [column.name for column in found.schema(1).columns] == ["id", "text"]
    assert found.schema(1).column("text").spec == "str"
    assert found.schema(1).column("nothing") is None


@pytest.mark.parametrize("order", [(0, 1), (2, 1, 0, 1)])
@pytest.mark.parametrize("long", [False, True])
def test_a_file_with_two_sizes_or_digests_is_refused(monkeypatch, order, long):
    monkeypatch.setattr("streamplug.index.json_index._MIN_PATTERN_BYTES", 0 if long else 1 << 30)
    name = "shard.00001.mds"
    shards = [shard(n, raw_data={**shard(n)["raw_data"], "hashes": {"sha1": "ab"}}) for n in order]
    for changes, refusal in (
        ({"bytes": 1000, "hashes": {"sha1": "ab"}}, False),
        ({"bytes": 1000, "hashes": {}}, False),
        ({"bytes": 1000, "hashes": {"md5": "cd"}}, False),
        ({"bytes": 1001, "hashes": {"sha1": "ab"}}, True),
        ({"bytes": 1000, "hashes": {"sha1": "cd"}}, True),
    ):
        entries = [*shards, shard(7), shard(raw_data={"basename": name, **changes})]
        data = json.dumps(json.loads(index(*entries)), sort_keys=True).encode()
        if refusal:
            assert f"shards 1 and {len(order) + 1} are in one file, '{name}'" in refused(data)
        else:
            assert len(parse_index(data, WHERE)) == len(entries)


def test_an_index_without_shards_is_an_empty_set():
    found = parse_index(index(), WHERE)
    assert (len(found), found.size, found.raw_bytes) == (0, 0, 0)


def test_an_empty_shard_is_accepted():
    found = parse_index(index(shard(samples=0), shard(1)), WHERE)
    assert found.samples.tolist() == [0, 11]


def test_shards_with_other_columns_have_a_schema_of_their_own():
    other = {"column_names": ["x"], "column_encodings": ["float32"], "column_sizes": [4]}
    found = parse_index(index(shard(0), shard(1, **other), shard(2)), WHERE)
    assert found.schema_of.tolist() == [0, 1, 0]
    assert found.schema(1).columns[0].spec == "float32"


def test_compressed_shards_have_both_files():
    stored = {"basename": "shard.00000.mds.gz", "bytes": 500, "hashes": {"xxh64": "00ff"}}
    found = parse_index(index(shard(compression="gz:5", zip_data=stored), shard(1)), WHERE)
    assert found.compressed
    assert found.shard(0).files["data"].zip == FileInfo(
        "shard.00000.mds.gz", 500, {"xxh64": "00ff"}
    )
    assert found.shard(1).files["data"].zip is None


def test_further_keys_are_ignored():
    found = parse_index(index(shard(novelty=[1, {}]), made_by="someone", extra={"a": 1}), WHERE)
    assert len(found) == 1


def test_what_is_written_is_read():
    file = FileInfo("shard.00000.mds", 1000, {"sha1": "ab"})
    entry = shard(raw_data=file_entry(file), zip_data=file_entry(None))
    found = parse_index(format_index([entry], {"note": "kept"}), WHERE)
    assert found.shard(0).files["data"].raw == file


def test_the_name_of_the_file_is_fixed():
    assert INDEX_NAME == "index.json"


@pytest.mark.parametrize("data", [b"", b" \n", b"\t"])
def test_an_empty_file_is_called_empty(data):
    text = refused(data)
    assert "is empty" in text
    assert "Write or copy the set again" in text


@pytest.mark.parametrize("cut", [1, 10, 100, 300])
def test_a_truncated_index_is_refused(cut):
    assert "is not whole, valid JSON" in refused(index(shard())[:-cut])


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02", b"\xff\xfe\xfd", b"<p>404</p>", b"{'a': 1}", b"nul"]
)
def test_what_is_not_json_is_refused(data):
    assert "is not whole, valid JSON" in refused(data)


@pytest.mark.parametrize("data", [b"[]", b"3", b'"index"', b"null", b"{}", b'{"shards": []}'])
def test_what_is_not_an_index_is_refused(data):
    assert "needs 'version' and 'shards'" in refused(data)


def test_an_index_without_shards_key_is_refused():
    assert "needs 'version' and 'shards'" in refused(b'{"version": 2}')


@pytest.mark.parametrize("shards", [{}, None, "x", 5])
def test_shards_that_are_no_list_are_refused(shards):
    data = json.dumps({"version": 2, "shards": shards}).encode()
    assert "'shards' must be a list" in refused(data)


@pytest.mark.parametrize("version", [1, 3, True, "2", None, 2.0, [2], {}])
def test_other_versions_are_refused(version):
    text = refused(index(version=version))
    assert f"has version {version!r}" in text
    assert "reads version 2" in text


@pytest.mark.parametrize("version", [1, 3, True, "2", None, 2.0, [2], {}])
def test_other_versions_of_a_shard_are_refused(version):
    text = refused(index(shard(version=version), shard(1)))
    assert f"shard 0: shard version {version!r}, expected 2" in text


@pytest.mark.parametrize("entry", [None, 5, "shard", [], True])
def test_an_entry_that_is_no_object_is_refused(entry):
    assert "shard 1: an entry must be an object" in refused(index(shard(), entry))


@pytest.mark.parametrize(
    "number", [None, -1, 10**30, 1 << 63, 1.0, 1e30, True, "10", [1], float("nan"), float("inf")]
)
def test_a_number_of_samples_that_is_no_count_is_refused(number):
    text = refused(index(shard(), shard(1, samples=number)))
    assert "shard 1: samples must be a whole number in [0, 2^63), got" in text


@pytest.mark.parametrize(
    "number", [None, -1, 10**30, 1 << 64, 1 << 63, 1.0, True, "10", [1], float("nan")]
)
@pytest.mark.parametrize("key", ["raw_data", "zip_data"])
def test_a_number_of_bytes_that_is_no_size_is_refused(number, key):
    file = {"basename": "shard.00000.mds", "bytes": number, "hashes": {}}
    text = refused(index(shard(compression="gz", **{key: file})))
    assert f"shard 0: {key}.bytes must be a whole number in [0, 2^63), got" in text


def test_more_samples_than_the_file_can_hold_are_refused():
    text = refused(index(shard(samples=1000)))
    assert "shard 0: 1000 samples cannot lie in a file of 1000 bytes" in text


def test_a_shard_beyond_4_gib_is_refused():
    file = {"basename": "a", "bytes": 1 << 32, "hashes": {}}
    assert "cannot lie in a file of 4294967296 bytes" in refused(index(shard(raw_data=file)))


def test_a_total_that_cannot_be_counted_is_refused(monkeypatch):
    monkeypatch.setattr("streamplug.builtin.mds.MDS.check", lambda *_: None)
    huge = shard(samples=(1 << 62) + 1)
    assert "shard 1: more samples than can be counted" in refused(index(huge, huge))


@pytest.mark.parametrize("depth", [300, 900, 960, 970, 980, 985, 990, 995, 2000, 100_000])
@pytest.mark.parametrize("place", ["version", "entry", "basename", "twice"])
def test_deep_nesting_is_refused_or_ignored(depth, place):
    entry = shard(**({"deep": "DEEP"} if place in ("entry", "twice") else {}))
    if place == "basename":
        entry["raw_data"]["basename"] = "DEEP"
    data = index(entry, *([shard(1, deep="DEEP")] if place == "twice" else []))
    if place == "version":
        data = index(version="DEEP")
    data = data.replace(b'"DEEP"', b"[" * depth + b"]" * depth)
    if place in ("entry", "twice"):
        with suppress(InvalidIndexError):
            assert len(parse_index(data, WHERE)) > 0
    else:
        assert len(refused(data)) < 1000


@pytest.mark.parametrize(
    "name",
    [
        "../shard.mds",
        "a/../../shard.mds",
        "a//../shard.mds",
        "./../shard.mds",
        "..",
        "/etc/passwd",
        "//host/shard.mds",
        "s3://bucket/shard.mds",
        "file:///etc/passwd",
        "simplecache::s3://bucket",
        "..\\shard.mds",
        "a\\..\\..\\shard.mds",
        "C:shard.mds",
        "C:/shard.mds",
        "./C:/shard.mds",
        "c:\\shard.mds",
        "~/shard.mds",
        "~root/shard.mds",
        ".//~root/shard.mds",
        ".streamplug/origin.json",
        "./.streamplug/origin.json",
        ".streamplug/lock.00",
        ".streamplug",
        ".streamplug-1234",
    ],
)
@pytest.mark.parametrize("key", ["raw_data", "zip_data"])
def test_a_file_name_that_leads_outside_is_refused(name, key):
    file = {"basename": name, "bytes": 1000, "hashes": {}}
    text = refused(index(shard(compression="gz", **{key: file})))
    assert f"shard 0: {key}.basename " in text
    assert "is not a relative path inside the data set" in text
    assert "do not use this index unless you know where it comes from" in text


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "./",
        "",
        "a/",
        "a/.",
        "a\\b",
        "shard\0.mds",
        "shard\n.mds",
        "shard\x1b[31m.mds",
        "shard\x7f.mds",
        "\ud800.mds",
        " shard.mds",
        "shard.mds ",
        "a/ /b",
        "shard?.mds",
        "shard*.mds",
        None,
        5,
        ["shard.mds"],
        {"a": 1},
    ],
)
@pytest.mark.parametrize("key", ["raw_data", "zip_data"])
def test_what_no_file_can_be_named_is_refused_without_a_suspicion(name, key):
    file = {"basename": name, "bytes": 1000, "hashes": {}}
    text = refused(index(shard(compression="gz", **{key: file})))
    assert f"shard 0: {key}.basename " in text
    assert "unless you know where it comes from" not in text
    assert (
        "cannot be the path of a file: names cannot contain" in text
        or "is no path of a file" in text
    )


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("./shard.mds", "shard.mds"),
        (".//shard.mds", "shard.mds"),
        ("./p0/shard.mds", "p0/shard.mds"),
        ("p0//shard.mds", "p0/shard.mds"),
        ("p0///x//shard.mds", "p0/x/shard.mds"),
        ("p0/./shard.mds", "p0/shard.mds"),
        ("././p0/././/shard.mds", "p0/shard.mds"),
    ],
)
@pytest.mark.parametrize("count", [1, 50])
def test_a_file_name_is_read_without_its_superfluous_parts(name, read, count):
    files = [{"basename": f"{name}{n}", "bytes": 1000, "hashes": {}} for n in range(count)]
    parsed = parse_index(index(*(shard(n, raw_data=file) for n, file in enumerate(files))), WHERE)
    names = [parsed.shard(n).files["data"].raw.basename for n in range(count)]
    assert names == [f"{read}{n}" for n in range(count)]


@pytest.mark.parametrize(
    "name", ["shard.mds", "part-0/shard.mds", "a b/c.mds", "ü/日本.mds", "a..b"]
)
def test_a_file_name_inside_is_accepted(name):
    file = {"basename": name, "bytes": 1000, "hashes": {}}
    assert (
        parse_index(index(shard(raw_data=file)), WHERE).shard(0).files["data"].raw.basename == name
    )


@pytest.mark.parametrize("file", [5, "shard.mds", [], True])
def test_a_file_that_is_no_object_is_refused(file):
    assert "raw_data must be an object or null" in refused(index(shard(raw_data=file)))


def test_a_missing_raw_file_is_refused():
    assert "shard 0: raw_data is missing" in refused(index(shard(raw_data=None)))


@pytest.mark.parametrize("layout", [{}, {"sort_keys": True}, {"indent": 1}])
def test_hashes_that_are_null_are_none(layout):
    entries = []
    for n in range(20):
        file = {"basename": f"shard.{n}.mds", "bytes": 1000, "hashes": None}
        entries.append({**shard(n, raw_data=file), "hashes": None if n % 2 else []})
    parsed = parse_index(json.dumps({"shards": entries, "version": 2}, **layout).encode(), WHERE)
    assert len(parsed) == 20
    assert [parsed.shard(n).files["data"].raw.hashes for n in range(20)] == [{}] * 20


@pytest.mark.parametrize("hashes", [0, [], "sha1", {"sha1": 5}, {"sha1": None}, {"sha1": ["a"]}])
def test_hashes_of_another_form_are_refused(hashes):
    file = {"basename": "shard.mds", "bytes": 1000, "hashes": hashes}
    assert "raw_data.hashes must map names to hex digests" in refused(index(shard(raw_data=file)))


@pytest.mark.parametrize("hashes", [0, "", "sha1", {"sha1": "a"}, ["sha1", None]])
def test_names_of_hashes_of_another_form_are_refused(hashes):
    assert "shard 0: hashes must be a list of names, got" in refused(index(shard(hashes=hashes)))


def test_a_compressed_file_without_compression_is_refused():
    stored = {"basename": "shard.mds.gz", "bytes": 10, "hashes": {}}
    assert "zip_data is given, but no compression" in refused(index(shard(zip_data=stored)))


def test_an_unknown_encoding_names_the_column_and_the_likely_one():
    text = refused(index(shard(column_encodings=["int", "strr"])), UnknownNameError)
    assert "shard 0: column 'text': unknown encoding 'strr'" in text
    assert "Did you mean 'str'?" in text


def test_an_unknown_encoding_of_another_distribution_is_pointed_to(monkeypatch):
    monkeypatch.setenv("STREAMPLUG_PLUGINS", "")
    from streamplug.plugin.registry import clear_caches

    clear_caches()
    try:
        text = refused(index(shard(column_encodings=["int", "jpeg"])), UnknownNameError)
    finally:
        monkeypatch.undo()
        clear_caches()
    assert "column 'text': unknown encoding 'jpeg'" in text
    assert "provided by streamplug-image" in text


def test_an_encoding_with_a_senseless_argument_names_the_column():
    text = refused(index(shard(column_encodings=["int", "str:5"])), ConfigError)
    assert "shard 0: column 'text': Str takes no argument, got '5'" in text


@pytest.mark.parametrize("name", ["", "mdss", "MDS", "a/b", "mds/../x"])
def test_an_unknown_format_is_refused(name):
    text = refused(index(shard(format=name)), UnknownNameError)
    assert f"shard 0: unknown format {name!r}" in text
    assert re.search(r"Available: (\w+, )*mds\b", text)


def test_an_unknown_format_suggests_the_likely_one():
    assert "Did you mean 'mds'?" in refused(index(shard(format="msd")), UnknownNameError)


@pytest.mark.parametrize("name", [None, 5, [], {}, True])
def test_a_format_that_is_no_name_is_refused(name):
    assert "format must be a name" in refused(index(shard(format=name)))


@pytest.mark.parametrize("name", [5, [], {}, True])
def test_a_compression_that_is_no_name_is_refused(name):
    assert "compression must be a name or null" in refused(index(shard(compression=name)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"column_names": ["id"]},
            "column_names must be distinct and at least one, and column_enc",
        ),
        ({"column_encodings": ["int", "str", "str"]}, "and column_encodings as many"),
        ({"column_sizes": [8]}, "column_sizes must be a list of 2 sizes, got [8]"),
        ({"column_sizes": None}, "column_sizes must be a list of 2 sizes, got None"),
        ({"column_sizes": {"id": 8}}, "column_sizes must be a list of 2 sizes, got {'id': 8}"),
    ],
)
def test_lists_of_columns_that_differ_in_length_are_refused(change, message):
    assert message in refused(index(shard(**change)))


@pytest.mark.parametrize("key", ["column_names", "column_encodings"])
@pytest.mark.parametrize("value", [None, "id", {"id": "int"}, ["id", 5], ["id", None]])
def test_columns_that_are_no_list_of_strings_are_refused(key, value):
    assert f"{key} must be a list of strings" in refused(index(shard(**{key: value})))


def test_two_columns_of_one_name_are_refused():
    change = {"column_names": ["id", "id"]}
    assert "column_names must be distinct and at least one" in refused(index(shard(**change)))


def test_a_shard_without_columns_is_refused():
    none: dict[str, Any] = {"column_names": [], "column_encodings": [], "column_sizes": []}
    assert "column_names must be distinct and at least one" in refused(index(shard(**none)))


@pytest.mark.parametrize("size", [4, None, "8", True, -8])
def test_sizes_that_contradict_the_encoding_are_refused(size):
    text = refused(index(shard(column_sizes=[size, None])))
    assert f"column 'id': column_sizes says {size!r}, but 'int' has size 8" in text


def test_a_size_for_an_encoding_without_one_is_refused():
    text = refused(index(shard(column_sizes=[8, 8])))
    assert "column 'text': column_sizes says 8, but 'str' has size None" in text


def test_one_is_not_taken_for_true():
    change = {"column_encodings": ["uint8", "str"], "column_sizes": [True, None]}
    assert "column_sizes says True" in refused(index(shard(**change)))
