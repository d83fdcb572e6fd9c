from __future__ import annotations

import pytest

from streamplug.errors import ConfigError
from streamplug.index.hashes import chosen_hashes, digests, hash_names, new_hash


def test_the_hashes_of_mosaicml_streaming_are_known():
    names = set(hash_names())
    assert {"blake2b", "md5", "sha1", "sha256", "sha3_512", "xxh32", "xxh64", "xxh3_128"} <= names
    assert not any(name.startswith("shake") for name in names)


def test_an_unknown_hash_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"unknown hash 'sha0'; available: .*sha1, .*xxh64"):
        new_hash("sha0")


def test_hashes_may_be_an_iterator():
    assert chosen_hashes(name for name in ("sha1", "md5", "sha1")) == ("md5", "sha1")
    with pytest.raises(ConfigError, match="unknown hash 'sha0'"):
        chosen_hashes(iter(["sha0"]))


def test_digests_are_taken_over_all_buffers_as_one():
    whole = digests(["sha1", "xxh64"], [b"abc"])
    assert whole == digests(["sha1", "xxh64"], [b"a", bytearray(b"b"), memoryview(b"c")])
    assert whole == {
        "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
        "xxh64": "44bc2cf5ad770999",
    }


@pytest.mark.parametrize("name", hash_names())
def test_every_hash_works(name):
    assert digests([name], [b"abc"])[name] == digests([name], [b"ab", b"c"])[name]
