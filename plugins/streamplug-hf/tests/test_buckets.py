"""Buckets of the Hub, which are read over HTTP and written through Xet, and whole files through Xet."""

from __future__ import annotations

import sys
import uuid
from urllib.parse import quote

import numpy as np
import pytest
from streamplug_hf.options import RepositoryPath, parse
from streamplug_hf.storage import HfStorage
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError
from streamplug.plugin_kit.cancellation import OversizeError, Scope, inside

TOKEN = "hf_letmein"


@pytest.fixture
def bucket(hub):
    """A function that puts or gets a file of a new bucket, which is its `name`."""
    name = f"team/bucket-{uuid.uuid4().hex[:12]}"
    place = f"{name}@{quote('(bucket)')}"
    hub.raw("POST", place)

    def raw(method, key, data=None):
        return hub.raw(method, place, key, data)

    raw.name = name
    return raw


class TestBucket(StorageTests):
    many = 250
    secret = TOKEN

    @pytest.fixture(autouse=True)
    def location(self, hub, bucket):
        self.hub, self.bucket = hub, bucket

    def make_storage(self):
        url = f"hf://buckets/{self.bucket.name}/some/set"
        return HfStorage(url, endpoint_url=self.hub.url, token=self.secret)

    def put_raw(self, key, data):
        self.bucket("PUT", f"some/set/{key}", data)

    def get_raw(self, key):
        return self.bucket("GET", f"some/set/{key}")


def test_a_data_set_is_written_to_a_bucket_and_read(bucket):
    remote = f"hf://buckets/{bucket.name}/set"
    with MDSWriter(out=remote, columns={"n": "int", "b": "ndarray:uint8"}, size_limit=3000) as out:
        for n in range(100):
            out.write({"n": n, "b": np.full(100, n, np.uint8)})
    for access in ("shard", "range"):
        dataset = StreamingDataset(remote=remote, access=access, shuffle=True, batch_size=10)
        assert sorted(row["n"] for row in dataset) == list(range(100))
        assert all((row["b"] == row["n"]).all() for row in dataset[[3, 99]])


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_001])
def test_what_is_written_through_xet_is_read_through_it(bucket, tmp_path, size):
    data = np.random.default_rng(size).bytes(size // 2) + b"x" * (size - size // 2)
    storage = HfStorage(f"hf://buckets/{bucket.name}", token=TOKEN, xet=True)
    storage.write("k", data)
    assert bucket("GET", "k") == data
    assert storage.read_range("k", size // 2, size) == data[size // 2 :]
    storage.download("k", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_large_files_of_a_repository_come_through_xet_if_told(hub, repository, tmp_path):
    data = bytes(range(256)) * 8000
    hub.raw("PUT", repository, "large", data)
    hub.raw("PUT", repository, "small", data[:99])
    storage = HfStorage(f"hf://datasets/{repository}", xet=True)
    for key, expected in (("large", data), ("small", data[:99])):
        storage.download(key, tmp_path / key)
        assert (tmp_path / key).read_bytes() == expected


def test_a_download_through_xet_of_more_than_was_asked_for_ends(bucket, tmp_path):
    bucket("PUT", "k", bytes(3_000_000))
    storage = HfStorage(f"hf://buckets/{bucket.name}", xet=True)
    scope = Scope()
    scope.max_bytes = 100_000
    with inside(scope), pytest.raises(OversizeError):
        storage.download("k", tmp_path / "k")


def test_without_hf_xet_a_bucket_is_read_and_writing_says_what_to_install(bucket, monkeypatch):
    bucket("PUT", "k", b"data")
    storage = HfStorage(f"hf://buckets/{bucket.name}")
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    assert storage.read("k") == b"data"
    with pytest.raises(StorageError, match=r"pip install 'hf_xet>=1\.8'"):
        storage.write("l", b"data")


def test_a_bucket_has_no_revisions():
    with pytest.raises(ConfigError, match="a bucket has no revisions; leave out @main"):
        HfStorage("hf://buckets/o/n@main/set")
    with pytest.raises(ConfigError, match="a bucket has no revisions; leave out revision="):
        HfStorage("hf://buckets/o/n", revision="main")
    with pytest.raises(ConfigError, match=r"names no repository; .*hf://buckets/OWNER/NAME/path"):
        HfStorage("hf://buckets/o")
    assert parse("hf://buckets/o/n/a/b") == RepositoryPath("buckets", "o/n", None, "a/b")


def test_a_bucket_that_does_not_exist(tmp_path):
    storage = HfStorage("hf://buckets/team/nope", token=TOKEN, xet=True)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        storage.list,
        lambda: storage.write("k", b"x"),
        lambda: storage.download("k", tmp_path / "k"),
    ):
        with pytest.raises(NotFound, match="hf://buckets/team/nope"):
            operation()
    with pytest.raises(AccessDenied, match="the bucket is private, gated or does not exist"):
        HfStorage("hf://buckets/team/nope").write("k", b"x")


def test_a_neighbour_with_the_same_start_is_not_listed(bucket):
    for key in ("set/1", "set2/1", "set"):
        bucket("PUT", key, b"x")
    assert [o.key for o in HfStorage(f"hf://buckets/{bucket.name}/set").list()] == ["1"]


class TestBucketAnswers(AnswerTests):
    location = "hf://buckets/o/n/set"
    first_request = ("GET", "/buckets/o/n/resolve/set/k")

    def make_storage(self, url, **options):
        return HfStorage(self.location, endpoint_url=url, **options)
