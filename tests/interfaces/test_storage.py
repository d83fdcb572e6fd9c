from __future__ import annotations

import time

import pytest

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import ConfigError, NotFound, StorageError
from streamplug.interfaces.storage import Storage, public_url, public_urls


class Anywhere(LocalStorage):
    """A storage of any URL that opens nothing."""

    def __init__(self, url):
        Storage.__init__(self, url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("https://me:secret@host/a", "https://host/a"),
        ("https://token@host/a", "https://host/a"),
        ("sftp://me:s@cret@host:22/a", "sftp://host:22/a"),
        ("sftp://me:se#cret@host/a", "sftp://host/a"),
        ("s3://AKIA:se/cr/et@bucket/a?v=1", "s3://bucket/a"),
        ("obstore:https://me:/secret@host/a", "obstore:https://host/a"),
        ("simplecache::https://me:se/c@ret@host/a", "simplecache::https://host/a"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://me:secret@host/a:b/c@d", "https://host/a:b/c@d"),
        ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
        (
            "s3://arn:aws:s3:us-east-1:1:accesspoint/n/a@b",
            "s3://arn:aws:s3:us-east-1:1:accesspoint/n/a@b",
        ),
        ("sftp://me:se?cret@host/a", "sftp://host/a"),
        ("https:/me:secret@host/a?sig=secret", "https:/host/a"),
        ("https:/token@host/a", "https:/host/a"),
        ("https:///me:secret@host/a", "https:///host/a"),
        ("file:///me@home/a", "file:///me@home/a"),
        ("dbfs:/me@example.com/a?", "dbfs:/me@example.com/a?"),
        ("https://host/a?sig=secret#x", "https://host/a"),
        ("simplecache::https://me:secret@host/a?t=1", "simplecache::https://host/a"),
        ("https://host/a@b", "https://host/a@b"),
        ("abfs://container@account.dfs/a", "abfs://container@account.dfs/a"),
        ("oci://bucket@space/a", "oci://bucket@space/a"),
        ("abfs://me:secret@account/a", "abfs://account/a"),
        ("github://owner:name@main/a", "github://owner:name@main/a"),
        ("/data/what?/a@b", "/data/what?/a@b"),
        ("/data/run:/a:b@c", "/data/run:/a:b@c"),
    ],
)
def test_public_url_hides_credentials(url, shown):
    assert public_url(url) == shown


def test_public_urls_of_what_may_be_several_locations():
    urls = ["https://me:secret@host/a", ("s3://b", 3), None]
    assert public_urls(urls) == ["https://host/a", ("s3://b", 3), None]
    assert public_urls(urls[0]) == "https://host/a"


@pytest.mark.parametrize(
    ("url", "key", "shown"),
    [
        ("s3://bucket/a/", "k", "s3://bucket/a/k"),
        ("s3://bucket/a", "", "s3://bucket/a"),
        ("/", "k", "/k"),
        ("/data//", "k", "/data/k"),
        ("https://host/a?sig=secret", "k?", "https://host/a/k?"),
    ],
)
def test_url_of_an_object(url, key, shown):
    assert Anywhere(url).url_of(key) == shown


@pytest.mark.parametrize("key", ["/a", "../a", "a/../../b", ".."])
def test_a_key_outside_of_the_location_is_refused(key):
    with pytest.raises(StorageError, match=r"^s3://bucket/a: key .* leads out of the location"):
        Anywhere("s3://bucket/a").check_key(key)
    Anywhere("s3://bucket/a").check_key("a/..b/c..")


def test_parts_are_had_object_by_object_where_they_are_not_joined(tmp_path):
    asked = []

    class Noting(LocalStorage):
        def read_ranges(self, key, ranges):
            asked.append(key)
            return super().read_ranges(key, ranges)

    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"abcdefghij")
    storage = Noting(str(tmp_path))
    parts = [("a", 1, 3), ("gone", 0, 1), ("b", 0, 2), ("a", 8, 20), ("gone", 3, 4)]
    found = Storage.read_many(storage, parts)
    assert asked == ["a", "gone", "b"]
    assert [found[0], found[2], found[3]] == [b"12", b"ab", b"89"]
    assert all(isinstance(found[place], NotFound) for place in (1, 4))


@pytest.mark.parametrize(
    "url", ["https://me:pass/word@host/a", "http://:/word@host", "s3://a:b/word@c"]
)
def test_a_slash_in_a_password_is_refused_without_showing_it(url):
    with pytest.raises(ConfigError, match="has a slash; write it as %2F") as caught:
        Anywhere(url)
    assert "word@" not in str(caught.value)
    assert "pass/" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a.", "a:", "a://", "a://b:c/", "https://u:p@", "a:/", "http:///", "@"]
)
@pytest.mark.parametrize("end", ["", "@", "/@x"])
def test_long_texts_that_are_no_urls_take_no_time(text, end):
    def seconds(count):
        start = time.process_time()
        public_url(text * count + end)
        return time.process_time() - start

    assert seconds(40_000) < 1  # some 10 ms; looking again from each place takes minutes
