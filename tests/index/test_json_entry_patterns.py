"""A long index.json, read by the pattern of its entries, says what it says when read with care."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import InvalidIndexError
from streamplug.index import Index, parse_index
from streamplug.index.builder import IndexBuilder
from streamplug.index.json_index import parse_entries_by_pattern

WHERE = "/data/set/index.json"


def shard(number: int = 0, **changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "column_encodings": ["int", "str"],
        "column_names": ["id", "samples"],
        "column_sizes": [8, None],
        "compression": "gz",
        "format": "mds",
        "hashes": ["xxh64"],
        "raw_data": {
            "basename": f"shard.{number:05d}.mds",
            "bytes": 1000 + number,
            "hashes": {"xxh64": f"{number:016x}"},
        },
        "samples": 10 + number % 7,
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }
    return {**entry, **changes}


def document(entries: list[Any], **top: Any) -> bytes:
    return json.dumps({"shards": entries, "version": 2, **top}).encode()


def quickly(data: bytes) -> Index | None:
    """Read an index by its pattern alone."""
    builder = IndexBuilder(WHERE)
    return None if parse_entries_by_pattern(data, builder) is None else builder.index()


def with_care(data: bytes) -> Index:
    with patch("streamplug.index.json_index._MIN_PATTERN_BYTES", len(data) + 1):
        return parse_index(data, WHERE)


def content(index: Index) -> list[Any]:
    shards = range(len(index))
    return [
        index.starts.tolist(),
        [index.shard(n) for n in shards],
        [index.schema(n).entry for n in shards],
        (index.digest, index.size, index.raw_bytes, index.compressed),
    ]


def same(data: bytes) -> Index:
    found = quickly(data)
    assert found is not None
    assert content(found) == content(with_care(data))
    return found


def test_entries_that_repeat_each_other_are_are_read_by_a_pattern():
    index = same(document([shard(n) for n in range(300)]))
    assert len(index) == 300
    assert not index.schema_of.any()
    assert set(index.tables) == {"raw_data"}


def test_only_a_few_entries_are_parsed_as_json(monkeypatch):
    parsed = []
    add = IndexBuilder.add
    monkeypatch.setattr(
        IndexBuilder, "add", lambda self, entry: parsed.append(1) or add(self, entry)
    )
    other = {"column_names": ["x"], "column_encodings": ["int8"], "column_sizes": [1]}
    zipped = {"basename": "z", "bytes": 3, "hashes": {}}
    entries = [shard(n) for n in range(200)]
    entries[50:150:2] = [shard(n, **other) for n in range(50, 150, 2)]
    entries[160:] = [
        shard(n, zip_data={**zipped, "basename": f"z{n}", "bytes": n}) for n in range(160, 200)
    ]
    data = document(entries)
    assert len(quickly(data)) == 200
    assert len(parsed) == 3
    assert content(quickly(data)) == content(with_care(data))


names = st.sampled_from(
    ["a b.mds", "ü/日.mds", "x", "part-0/s.mds", "s.10.mds", "7", "a%d.5"]
) | st.integers(0, 10**19).map(lambda n: f"shard.{n:05d}.mds")
digests = st.dictionaries(
    st.sampled_from(["sha1", "xxh64", 'o"d\\d']),
    st.sampled_from(["00ff", "ABCD", "not hex", "é", "0"]),
    max_size=2,
)
files = st.builds(
    lambda name, size, hashes: {"basename": name, "bytes": size, "hashes": hashes},
    names,
    st.sampled_from([100, 1000, 4096, (1 << 32) - 1]),
    digests,
)
layouts = st.sampled_from(
    [{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"sort_keys": True}]
)


@st.composite
def entry_lists(draw, least=1):
    kinds = draw(
        st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "novelty": st.sampled_from(
                        [[], {"samples": 1}, "samples", '"samples": 5', 1.5]
                    ),
                    "zip_data": files,
                    "size_limit": st.none(),
                },
            ),
            min_size=1,
            max_size=3,
        )
    )
    entries = []
    for number in range(draw(st.integers(least, 12))):
        changes = dict(draw(st.sampled_from(kinds)))
        if draw(st.booleans()):
            changes["raw_data"] = draw(files)
        for key in changes.keys() & {"raw_data", "zip_data"}:  # a name for each file
            changes[key] = {**changes[key], "basename": f"{changes[key]['basename']}.{number}"}
        entries.append(shard(number, **changes))
    return entries


tops = st.sampled_from([{}, {"a": [{}]}, {"shard": 1}])


@given(entries=entry_lists(), top=tops)
def test_both_ways_of_reading_agree(entries, top):
    same(json.dumps({**top, "shards": entries, "version": 2}, sort_keys=True).encode())


@given(entries=entry_lists(), layout=layouts, top=tops)
def test_in_any_layout_an_index_says_the_same(entries, layout, top):
    data = json.dumps({**top, "shards": entries, "version": 2}, **layout).encode()
    with patch("streamplug.index.json_index._MIN_PATTERN_BYTES", 0):
        assert content(parse_index(data, WHERE)) == content(with_care(data))


@given(
    entries=entry_lists(least=3),
    place=st.floats(0, 1),
    byte=st.binary(max_size=3),
    cut=st.integers(0, 2),
)
def test_both_ways_of_reading_agree_on_what_is_damaged(entries, place, byte, cut):
    data = document(entries)
    at = int(place * len(data))
    data = data[:at] + byte + data[at + cut :]
    try:
        expected: Any = content(with_care(data))
    except Exception as error:
        expected = (type(error), str(error))
    try:
        with patch("streamplug.index.json_index._MIN_PATTERN_BYTES", 0):
            found: Any = content(parse_index(data, WHERE))
    except Exception as error:
        found = (type(error), str(error))
    assert found == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"shards": []}',
        document([]),
        document([shard()])[:-1],
        document([5]),
        document([shard(), 5]),
        document([shard(), shard(1, samples=-1)]),
        document([shard(), shard(1, raw_data=None)]),
        document([shard()]).replace(b'"samples": 10', b'"samples": 10, "samples": 11'),
        b'{"extra": ' + document([shard()]) + b', "shards": [], "version": 2}',
        b'{"extra": ' + document([shard()]) + b', "\\u0073hards": [], "version": 2}',
        document([shard()]).replace(b'"version": 2}', b'"version": 2, "shards": []}')[:-1] + b"}",
        json.dumps({"shards": "x", "note": '"shards": [{'}).encode(),
        document([shard(n, novelty=n) for n in range(100)]),
        document([shard()]).decode().encode("utf-16"),
        document([shard(novelty="X")]).replace(b"X", b"\xff"),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_careful_reading(data):
    assert quickly(data) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"samples": 1000}, "shard 150: 1000 samples cannot lie in a file of 1150 bytes"),
        ({"samples": 1 << 63}, "shard 150: samples must be a whole number"),
        ({"version": 3}, "shard 150: shard version 3"),
        (
            {"raw_data": {"basename": "../x", "bytes": 1000, "hashes": {}}},
            "shard 150: raw_data.bas",
        ),
        (
            {"raw_data": {"basename": "x", "bytes": 1000, "hashes": {"a": ""}}},
            "raw_data.hashes must",
        ),
    ],
)
def test_an_error_in_a_long_index_names_the_shard(changes, why):
    entries = [shard(n) for n in range(300)]
    entries[150] |= changes
    data = document(entries)
    assert len(data) > 1 << 16
    with pytest.raises(InvalidIndexError) as caught:
        parse_index(data, WHERE)
    assert str(caught.value).startswith(f"{WHERE}: shard 150: ")
    assert why in str(caught.value)


def test_a_long_index_of_another_version_is_refused():
    data = document([shard(n) for n in range(300)], version=3)
    with pytest.raises(InvalidIndexError, match="has version 3"):
        parse_index(data, WHERE)


def test_samples_that_cannot_be_counted_are_noticed_in_a_long_index(monkeypatch):
    monkeypatch.setattr("streamplug.builtin.mds.MDS.check", lambda *_: None)
    huge = [shard(n, samples=10**17) for n in range(300)]
    with pytest.raises(InvalidIndexError, match="shard 92: more samples than can be counted"):
        parse_index(document(huge), WHERE)


def test_too_many_algorithms_are_refused():
    entries = [
        shard(raw_data={"basename": "a", "bytes": 1000, "hashes": {f"{n}": "00"}})
        for n in range(65)
    ]
    with pytest.raises(InvalidIndexError, match="shard 64: hashes by more than 64 algorithms"):
        parse_index(document(entries), WHERE)
