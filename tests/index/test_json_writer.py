from __future__ import annotations

from streamplug.index import file_entry, format_index
from streamplug.types import FileInfo


def test_the_bytes_are_those_of_mosaicml_streaming():
    entry = {"samples": 3, "raw_data": {"bytes": 5, "basename": "a"}}
    assert format_index([entry], {}) == (
        b'{"shards": [{"raw_data": {"basename": "a", "bytes": 5}, "samples": 3}], "version": 2}'
    )


def test_further_keys_go_to_the_top_level():
    assert format_index([], {"author": "me"}) == b'{"author": "me", "shards": [], "version": 2}'


def test_the_version_cannot_be_changed_by_further_keys():
    assert format_index([], {"version": 9, "shards": 1}) == b'{"shards": [], "version": 2}'


def test_a_file_becomes_an_object_and_no_file_null():
    assert file_entry(None) is None
    assert file_entry(FileInfo("a", 5, {"sha1": "00"})) == {
        "basename": "a",
        "bytes": 5,
        "hashes": {"sha1": "00"},
    }
