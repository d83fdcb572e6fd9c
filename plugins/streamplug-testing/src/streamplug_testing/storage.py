"""Conformance tests of storages, for plugin authors to subclass."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from streamplug.errors import AlreadyExists, NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug_testing.creation import can_create, create_at_once
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same
from streamplug_testing.multi_range import read_parts_or_raise
from streamplug_testing.processes import read_in_child
from streamplug_testing.version import check_download, check_parts, check_versions

DATA = bytes(range(256)) * 40
LARGE = random.Random(0).randbytes(300_000)
"""More than the buffers of clients hold."""
ODD_KEYS = (
    *("ü/日本語.bin", "a b", "a+b", "100%", "%20", "#1", "q?x=1", "a&b=c"),
    *("[1]{2}*.bin", "~x", "a:b", "'q'", "..x", "deep/er/and/deep/er"),
)
OUTSIDE = ("../x", "a/../../x", "/x")
READS: dict[str, Callable[[Storage, str, Path], object]] = {
    "read": lambda storage, key, _: storage.read(key),
    "read_range": lambda storage, key, _: storage.read_range(key, 0, 1),
    "read_ranges": lambda storage, key, _: storage.read_ranges(key, [(0, 1), (1, 2)]),
    "read_many": lambda storage, key, _: read_parts_or_raise(storage, (key, 0, 1), (key, 1, 2)),
    "download": lambda storage, key, path: storage.download(key, path),
    "stat": lambda storage, key, _: storage.stat(key),
}
WRITES: dict[str, Callable[[Storage, str, Path], None]] = {
    "write": lambda storage, key, path: storage.write(key, path.read_bytes()),
    "upload": lambda storage, key, path: storage.upload(path, key),
}
CHANGES: dict[str, Callable[[Storage, str, Path], None]] = {
    **WRITES,
    "delete": lambda storage, key, _: storage.delete(key),
}


class StorageTests(ConformanceBase):
    """Conformance tests of a storage; subclasses create it and access its objects without it.

    Each test has its own location, empty at the start: an ``autouse=True`` fixture of the subclass
    chooses it, and the three methods below use it.

    Attributes:
        secret: A string that `make_storage` passes as an option (a password, say); it must not appear
            in any repr or error. Empty if the storage has no such option.
        many: Number of objects to list: more than one page of the service.
        has_versions: Whether `stat` and `list` return versions of objects. Set it to False only if the
            service has neither ETags nor checksums nor modification times: with such a storage, rewritten
            files of the same size are not noticed.
    """

    secret: ClassVar[str] = ""
    many: ClassVar[int] = 1100
    has_versions: ClassVar[bool] = True

    def make_storage(self) -> Storage:
        """Return a new instance for the test's location."""
        raise NotImplementedError

    def put_raw(self, key: str, data: bytes) -> None:
        """Create an object without using the storage under test."""
        raise NotImplementedError

    def get_raw(self, key: str) -> bytes:
        """Return an object's content without using the storage under test."""
        raise NotImplementedError

    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        """A storage for the test's location."""
        storage = self.make_storage()
        yield storage
        storage.close()

    # -- reading ------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 3_000_000])
    def test_reads_whole_objects(self, storage: Storage, size: int) -> None:
        data = os.urandom(size)
        self.put_raw("a/b", data)
        assert same(storage.read("a/b"), data)

    @pytest.mark.parametrize(
        ("start", "stop"),
        [
            *((0, 1), (3, 9), (5, 5), (9_999, 299_999), (0, len(LARGE))),
            *((len(LARGE) - 1, len(LARGE)), (len(LARGE) - 3, len(LARGE) + 100)),
            *((len(LARGE), len(LARGE) + 1), (len(LARGE) + 10, len(LARGE) + 20)),
        ],
    )
    def test_reads_a_range(self, storage: Storage, start: int, stop: int) -> None:
        self.put_raw("k", LARGE)
        assert same(storage.read_range("k", start, stop), LARGE[start:stop])

    def test_reads_a_range_of_an_empty_object(self, storage: Storage) -> None:
        self.put_raw("k", b"")
        assert storage.read_range("k", 0, 10) == b""

    def test_reads_many_ranges_in_their_order(self, storage: Storage) -> None:
        size = len(LARGE)
        self.put_raw("k", LARGE)
        ranges = [(i * 7919 % 10_240, i * 7919 % 10_240 + i) for i in range(60)]
        ranges += [(size + 5, size + 6), (0, 4), (0, 4), (2, 2), (7, size - 7), (0, size)]
        found = [bytes(data) for data in storage.read_ranges("k", ranges)]
        assert same(found, [LARGE[a:b] for a, b in ranges])
        assert storage.read_ranges("k", []) == []

    def test_reads_parts_of_several_objects(self, storage: Storage) -> None:
        size = len(LARGE)
        self.put_raw("k", LARGE)
        self.put_raw("a/b", LARGE[::-1])
        parts = [("k", 3, 9), ("a/b", 0, 4), ("k", size - 3, size + 99), ("a/b", size, size + 1)]
        parts += [("k", 5, size), ("a/b", 0, size - 5)]
        expected = [LARGE[3:9], LARGE[::-1][:4], LARGE[-3:], b"", LARGE[5:], LARGE[:4:-1]]
        assert same(read_parts_or_raise(storage, *parts), expected)
        *contents, missing = storage.read_many([*parts, ("gone", 0, 4)])
        found = [data if isinstance(data, StorageError) else bytes(data) for data in contents]
        assert same(found, expected)
        assert isinstance(missing, NotFound)
        assert f"{storage.url}/gone" in str(missing)

    def test_downloads(self, storage: Storage, tmp_path: Path) -> None:
        self.put_raw("a/b", LARGE)
        self.put_raw("empty", b"")
        (tmp_path / "there").write_bytes(b"an earlier file, which is longer" * 10_000)
        storage.download("a/b", tmp_path / "new")
        storage.download("a/b", tmp_path / "there")
        storage.download("empty", tmp_path / "empty")
        assert same((tmp_path / "new").read_bytes(), LARGE)
        assert same((tmp_path / "there").read_bytes(), LARGE)
        assert (tmp_path / "empty").read_bytes() == b""

    # -- writing ------------------------------------------------------------------

    @pytest.mark.parametrize("way", WRITES)
    @pytest.mark.parametrize("size", [0, 1, 9_000_000])
    def test_writes_and_uploads(
        self, storage: Storage, tmp_path: Path, way: str, size: int
    ) -> None:
        data = os.urandom(size)
        (tmp_path / "source").write_bytes(data)
        WRITES[way](storage, "a/b", tmp_path / "source")
        assert same(self.get_raw("a/b"), data)
        assert [(o.key, o.size) for o in storage.list()] == [("a/b", size)]

    @pytest.mark.parametrize("way", WRITES)
    def test_replaces_by_something_shorter(
        self, storage: Storage, tmp_path: Path, way: str
    ) -> None:
        self.put_raw("k", DATA)
        (tmp_path / "source").write_bytes(b"short")
        WRITES[way](storage, "k", tmp_path / "source")
        assert self.get_raw("k") == b"short"

    def test_creates_only_what_is_missing(self, storage: Storage) -> None:
        created = create_at_once(storage, "a/new")
        assert [self.get_raw("a/new") for _ in created] == created

    @pytest.mark.parametrize("kind", [bytearray, memoryview])
    def test_writes_any_buffer(self, storage: Storage, kind: type[bytearray]) -> None:
        storage.write("k", kind(DATA))
        assert same(self.get_raw("k"), DATA)

    @pytest.mark.parametrize("way", WRITES)
    def test_readers_see_the_old_or_the_new(
        self, storage: Storage, tmp_path: Path, way: str
    ) -> None:
        contents = [b"a" * 2_000_000, b"b" * 1_500_000]
        sources = [tmp_path / "a", tmp_path / "b"]
        for source, content in zip(sources, contents, strict=True):
            source.write_bytes(content)
        WRITES[way](storage, "k", sources[0])
        done = threading.Event()

        def write() -> None:
            try:
                for turn in range(20):
                    WRITES[way](storage, "k", sources[turn % 2])
            finally:
                done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not done.is_set():
                assert storage.read("k") in contents, "a reader saw a part of an object"
            writing.result()

    # -- listing and looking ------------------------------------------------------

    def test_lists_sorted_at_any_depth(self, storage: Storage) -> None:
        keys = ["b", "a/2", "a/1", "a/c/d/e", "a.x", "a-x", "B"]
        for size, key in enumerate(keys):
            self.put_raw(key, b"." * size)
        expected = sorted((key, size) for size, key in enumerate(keys))
        assert [(o.key, o.size) for o in storage.list()] == expected

    def test_lists_by_prefix(self, storage: Storage) -> None:
        for key in ("shard.0", "shard.1", "shards/0", "index", "sub/shard.0"):
            self.put_raw(key, b"x")
        assert [o.key for o in storage.list("shard")] == ["shard.0", "shard.1", "shards/0"]
        assert [o.key for o in storage.list("shard.")] == ["shard.0", "shard.1"]
        assert [o.key for o in storage.list("sub/")] == ["sub/shard.0"]
        assert [o.key for o in storage.list("sub/sh")] == ["sub/shard.0"]
        assert [o.key for o in storage.list("index")] == ["index"]
        assert list(storage.list("nothing")) == []
        assert list(storage.list("no/thing")) == []

    def test_lists_nothing_where_nothing_is(self, storage: Storage) -> None:
        assert list(storage.list()) == []

    def test_lists_many_objects(self, storage: Storage) -> None:
        keys = [f"part/{i:05d}" for i in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: self.put_raw(key, b""), keys))
        assert [o.key for o in storage.list("part/")] == keys

    def test_sees_what_others_changed(self, storage: Storage) -> None:
        self.put_raw("a/1", b"1")
        assert [o.key for o in storage.list()] == ["a/1"]
        assert not storage.exists("a/2")
        self.put_raw("a/2", b"2")
        self.put_raw("a/1", b"longer")
        assert [(o.key, o.size) for o in storage.list()] == [("a/1", 6), ("a/2", 1)]
        assert storage.exists("a/2")
        assert storage.stat("a/1").size == 6

    def test_stat_tells_key_and_size(self, storage: Storage) -> None:
        self.put_raw("a/b", DATA)
        entry = storage.stat("a/b")
        assert (entry.key, entry.size) == ("a/b", len(DATA))

    def test_rewriting_changes_the_version(self, storage: Storage) -> None:
        if not self.has_versions:
            pytest.skip("the storage has no versions")
        check_versions(storage, self.put_raw)

    def test_parts_are_of_one_version(self, storage: Storage) -> None:
        if not self.has_versions:
            pytest.skip("the storage has no versions")
        check_parts(storage, self.put_raw)

    def test_a_download_is_of_one_version(self, storage: Storage, tmp_path: Path) -> None:
        check_download(storage, self.put_raw, tmp_path / "copy")

    def test_exists(self, storage: Storage) -> None:
        self.put_raw("a/b", b"")
        assert storage.exists("a/b")
        assert not storage.exists("a")
        assert not storage.exists("a/b/c")
        assert not storage.exists("c")

    def test_deletes(self, storage: Storage) -> None:
        self.put_raw("a/b", b"x")
        storage.delete("a/b")
        assert not storage.exists("a/b")
        storage.delete("a/b")
        storage.delete("never/was")

    # -- errors -------------------------------------------------------------------

    @pytest.mark.parametrize("operation", READS)
    @pytest.mark.parametrize("key", ["gone", "folder/gone", "folder"])
    def test_what_is_missing_is_not_found(
        self, storage: Storage, tmp_path: Path, operation: str, key: str
    ) -> None:
        self.put_raw("folder/there", b"x")
        with pytest.raises(NotFound) as caught:
            READS[operation](storage, key, tmp_path / "target")
        assert storage.url_of(key) in str(caught.value)
        assert not (tmp_path / "target").is_dir()

    def test_a_missing_source_is_not_found(self, storage: Storage, tmp_path: Path) -> None:
        self.put_raw("old", b"x")
        for key in ("k", "old"):
            with pytest.raises(NotFound, match="no-such-file"):
                storage.upload(tmp_path / "no-such-file", key)
        assert not storage.exists("k")
        assert self.get_raw("old") == b"x"

    @pytest.mark.parametrize("key", OUTSIDE)
    def test_reads_nothing_outside(self, storage: Storage, tmp_path: Path, key: str) -> None:
        for operation in READS.values():
            with pytest.raises(StorageError, match="leads out"):
                operation(storage, key, tmp_path / "target")

    @pytest.mark.parametrize("key", OUTSIDE)
    def test_writes_nothing_outside(self, storage: Storage, tmp_path: Path, key: str) -> None:
        (tmp_path / "source").write_bytes(b"x")
        for operation in CHANGES.values():
            with pytest.raises(StorageError, match="leads out"):
                operation(storage, key, tmp_path / "source")

    def test_shows_no_secrets(self, storage: Storage, tmp_path: Path) -> None:
        if not self.secret:
            pytest.skip("the storage takes no secrets")
        assert self.secret not in f"{storage!r} {storage} {storage.url}"
        source, missing = tmp_path / "source", tmp_path / "missing"
        source.write_bytes(b"x")
        failures: list[Callable[[], object]] = [partial(storage.upload, missing, "k")]
        failures += [partial(o, storage, "gone", tmp_path / "target") for o in READS.values()]
        failures += [partial(o, storage, OUTSIDE[0], source) for o in CHANGES.values()]
        for failure in failures:
            with pytest.raises(StorageError) as caught:
                failure()
            shown = "".join(traceback.format_exception(caught.value))
            assert self.secret not in shown + repr(caught.value)

    # -- keys ---------------------------------------------------------------------

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_takes_keys_as_they_are(self, storage: Storage, tmp_path: Path, key: str) -> None:
        self.put_raw(key, DATA)
        assert same(storage.read(key), DATA)
        assert storage.read_range(key, 1, 4) == DATA[1:4]
        assert storage.read_ranges(key, [(1, 4), (9, 12)]) == [DATA[1:4], DATA[9:12]]
        assert read_parts_or_raise(storage, (key, 1, 4), (key, 9, 12)) == [DATA[1:4], DATA[9:12]]
        assert storage.stat(key).size == len(DATA)
        assert storage.exists(key)
        assert [o.key for o in storage.list()] == [key]
        assert [o.key for o in storage.list(key[:-1])] == [key]
        storage.download(key, tmp_path / "local")
        assert same((tmp_path / "local").read_bytes(), DATA)

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_writes_keys_as_they_are(self, storage: Storage, tmp_path: Path, key: str) -> None:
        storage.write(key, DATA)
        assert same(self.get_raw(key), DATA)
        (tmp_path / "local").write_bytes(b"new")
        storage.upload(tmp_path / "local", key)
        assert self.get_raw(key) == b"new"
        others = sorted([f"{key}0", "0", "deep/er/and/0"])
        for other in others:
            self.put_raw(other, b"x")
        storage.delete(key)
        assert [o.key for o in storage.list()] == others
        if can_create(storage):
            storage.create(key, DATA)
            assert same(self.get_raw(key), DATA)
            with pytest.raises(AlreadyExists):
                storage.create(f"{key}0", DATA)

    # -- life ---------------------------------------------------------------------

    def test_closes_twice_and_opens_again(self, storage: Storage) -> None:
        self.put_raw("k", DATA)
        storage.close()
        assert same(storage.read("k"), DATA)
        storage.close()
        storage.close()
        assert storage.stat("k").size == len(DATA)

    def test_pickles(self, storage: Storage) -> None:
        self.put_raw("k", DATA)
        assert same(storage.read("k"), DATA)
        copy = pickle.loads(pickle.dumps(storage))
        assert (type(copy), copy.url) == (type(storage), storage.url)
        assert same(copy.read("k"), DATA)
        copy.close()

    def test_works_in_a_forked_child(self, storage: Storage) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            pytest.skip("this system has no fork")
        self.put_raw("k", DATA)
        assert same(storage.read("k"), DATA)
        assert same(read_in_child("fork", storage, "k"), DATA)
        assert same(storage.read("k"), DATA), "the child broke its parent's connection"

    def test_works_in_a_spawned_child(self, storage: Storage) -> None:
        self.put_raw("k", DATA)
        assert same(storage.read("k"), DATA)
        assert same(read_in_child("spawn", storage, "k"), DATA)

    def test_serves_many_threads(self, storage: Storage, tmp_path: Path) -> None:
        threads = 8
        contents = [os.urandom(50_000) for _ in range(threads)]
        for i, content in enumerate(contents):
            self.put_raw(f"t/{i}", content)
        together = threading.Barrier(threads)

        def work(i: int) -> None:
            together.wait(60)  # all threads race to open the storage
            for _ in range(3):
                assert same(storage.read(f"t/{i}"), contents[i])
                assert storage.read_range(f"t/{i}", 10, 20) == contents[i][10:20]
                ranges = storage.read_ranges(f"t/{i}", [(0, 20), (40_000, 49_000)])
                assert same([*map(bytes, ranges)], [contents[i][:20], contents[i][40_000:49_000]])
                storage.download(f"t/{i}", tmp_path / str(i))
                assert same((tmp_path / str(i)).read_bytes(), contents[i])
                assert storage.stat(f"t/{i}").size == 50_000
            assert len(list(storage.list("t/"))) == threads

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))

    def test_writes_from_many_threads(self, storage: Storage) -> None:
        contents = [bytes([i]) * 50_000 for i in range(4)]
        together = threading.Barrier(len(contents))

        def work(i: int) -> None:
            together.wait(60)
            storage.write(f"t/{i}", contents[i])

        with ThreadPoolExecutor(len(contents)) as pool:
            list(pool.map(work, range(len(contents))))
        assert same([self.get_raw(f"t/{i}") for i in range(len(contents))], contents)
