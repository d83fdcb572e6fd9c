from __future__ import annotations

import ftplib
import gc
import io
import multiprocessing
import random
import sys
import tarfile
import time
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from streamplug_fsspec import FsspecStorage, HttpStorage, MemoryStorage, version_of
from streamplug_fsspec.one_at_a_time import shares_position
from streamplug_testing.storage import StorageTests

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError, StorageError, Transient, UnknownNameError
from streamplug.plugin import open_storage


class TestMemory(StorageTests):
    deviations: ClassVar = {"test_works_in_a_spawned_child": "memory belongs to one process"}

    @pytest.fixture(autouse=True)
    def location(self):
        self.root = f"/{uuid.uuid4().hex}"
        yield
        for name in [name for name in MemoryFileSystem.store if name.startswith(self.root)]:
            del MemoryFileSystem.store[name]

    def make_storage(self):
        return MemoryStorage(f"memory:/{self.root}")

    def put_raw(self, key, data):
        MemoryFileSystem().pipe_file(f"{self.root}/{key}", data)

    def get_raw(self, key):
        return MemoryFileSystem.store[f"{self.root}/{key}"].getvalue()


class TestDirectories(StorageTests):
    """A file system with directories, in which a write is a rename."""

    @pytest.fixture(autouse=True)
    def location(self, tmp_path_factory):
        self.root = tmp_path_factory.mktemp("storage") / "set"

    def make_storage(self):
        return FsspecStorage(f"file://{self.root}")

    def put_raw(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.root / key).read_bytes()


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"etag": '"0x8D"', "mtime": 5.0}, "0x8D"),
        ({"etag": None, "mtime": 5.0}, "5.0"),
        ({"Last-Modified": "Thu, 01 Jan 1970 00:00:05 GMT"}, "Thu, 01 Jan 1970 00:00:05 GMT"),
        ({"created": datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)}, "5.0"),
        ({"modificationTime": 5000}, "5000"),
        ({"modify": "19700101000005"}, "19700101000005"),
        ({"size": 5}, ""),
    ],
)
def test_the_version_is_the_etag_or_the_time(info, version):
    assert version_of(info) == version


class InvertsRanges(MemoryStorage):
    asynchronous = True

    def read_range(self, key, start, stop):
        return bytes(byte ^ 255 for byte in super().read_range(key, start, stop))


def test_an_overridden_read_of_a_range_is_called_for_several(tmp_path):
    storage = InvertsRanges(f"memory:/{tmp_path}")
    storage.write("k", b"\x00\x01\x02\x03")
    assert storage.read_range("k", 0, 2) == b"\xff\xfe"
    assert storage.read_ranges("k", [(0, 1), (2, 4)]) == [b"\xff", b"\xfd\xfc"]
    assert storage.read_many([("k", 0, 1), ("k", 2, 4)]) == [b"\xff", b"\xfd\xfc"]


@pytest.mark.parametrize("url", ["memory:/set", "ftp:/host/set"])
def test_a_url_with_one_slash_is_no_path_in_the_working_directory(url):
    with pytest.raises(ConfigError, match=f"{url}: write [a-z]*:// with two slashes"):
        open_storage(url)


def test_a_chain_of_protocols(tmp_path):
    (tmp_path / "k").write_bytes(b"data")
    storage = open_storage(
        f"simplecache::file://{tmp_path}",
        {"simplecache": {"cache_storage": str(tmp_path / "cache")}},
    )
    assert storage.read("k") == b"data"
    storage.write("new/k", b"more")
    assert (tmp_path / "new" / "k").read_bytes() == b"more"


def test_threads_get_the_bytes_of_their_own_file_of_an_archive(tmp_path):
    contents = {f"set/{n}": random.Random(n).randbytes(100_000 + n) for n in range(20)}
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    storage = open_storage(f"tar://set::file://{tmp_path}/archive.tar")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(storage.read, [str(n) for n in range(20)] * 15))
    finally:
        sys.setswitchinterval(interval)
    assert read == list(contents.values()) * 15


@pytest.mark.parametrize(
    "error", [EOFError(), ftplib.error_temp("421 Timeout."), BrokenPipeError()]
)
def test_a_connection_that_the_server_closed_is_made_again(error):
    class Connection:
        protocol, async_impl, dircache, made = "ftp", False, None, 0

        def __init__(self):
            Connection.made += 1
            self.is_lost = Connection.made == 1

        def cat_file(self, path):
            if self.is_lost:
                raise FileNotFoundError(path) from error
            return b"data"

    class Storage(FsspecStorage):
        def make_filesystem(self, options):
            return Connection(), "/set"

    storage = Storage("ftp://host/set")
    with pytest.raises(Transient, match="ftp://host/set/k"):
        storage.read("k")
    assert storage.read("k") == b"data"


@pytest.mark.parametrize(
    ("protocol", "inner", "takes_turns"),
    [
        ("ftp", None, True),
        (("zip",), None, False),
        ("simplecache", "tar", True),
        ("dir", "s3", False),
    ],
)
def test_file_systems_with_one_connection_or_position_take_turns(protocol, inner, takes_turns):
    filesystem = SimpleNamespace(protocol=protocol, fs=inner and SimpleNamespace(protocol=inner))
    assert shares_position(filesystem) is takes_turns


def test_a_client_that_is_not_installed_is_named():
    with pytest.raises(StorageError, match=r"^gdrive://x/k: .*install"):
        open_storage("gdrive://x").read("k")


def test_storages_share_no_file_system():
    a, b = FsspecStorage("memory://x"), FsspecStorage("memory://x")
    assert a.filesystem() is not b.filesystem()


def test_two_threads_open_one_file_system():
    class Slow(MemoryStorage):
        made = 0

        def filesystem_options(self):
            Slow.made += 1
            time.sleep(0.05)
            return {}

    storage = Slow("memory://x")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: storage.filesystem(), range(4)))
    assert (Slow.made, len({id(f) for f in found})) == (1, 1)


def test_a_fork_does_not_close_what_its_parent_has_dropped():
    context = multiprocessing.get_context("fork")
    storage = HttpStorage("http://127.0.0.1:9/")
    made = weakref.ref(storage.filesystem())
    gc.disable()  # it refers to itself, so that only the collector ends it
    try:
        del storage
        assert made() is not None
        here, there = context.Pipe()
        child = context.Process(target=lambda: there.send((gc.collect(), made() is not None)))
        child.start()
        assert here.poll(60)
        assert here.recv()[1]
        child.join(60)
    finally:
        gc.enable()
    gc.collect()
    assert made() is None


def test_who_reads_in_a_way_of_its_own_is_asked_in_that_way():
    class Plain(HttpStorage):
        pass

    class OwnRanges(HttpStorage):
        def read_ranges(self, key, ranges):
            return super().read_ranges(key, ranges)

    class OwnParts(OwnRanges):
        def read_many(self, parts):
            return super().read_many(parts)

    class OwnCat(Plain):
        def cat_ranges(self, path, ranges):
            return super().cat_ranges(path, ranges)

    kinds = (HttpStorage, Plain, OwnRanges, OwnParts, OwnCat)
    assert [kind("http://h").supports_read_many for kind in kinds] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert not MemoryStorage("memory://x").supports_read_many


@pytest.mark.parametrize(
    ("location", "storage_class"),
    [
        ("memory://set", MemoryStorage),
        ("MEMORY://set", MemoryStorage),
        ("https://host/set", HttpStorage),
        ("ftp://host/set", FsspecStorage),
        ("zip://a::file:///set.zip", FsspecStorage),
        ("simplecache::file:///set", FsspecStorage),
        ("simplecache::/set", FsspecStorage),
    ],
)
def test_the_scheme_chooses_the_storage(location, storage_class):
    storage = open_storage(location)
    assert type(storage) is storage_class
    assert storage.url == location.replace("MEMORY", "memory")


def test_what_fsspec_does_not_know_is_unknown():
    with pytest.raises(UnknownNameError, match=r"^nowhere://x: unknown storage 'nowhere'"):
        open_storage("nowhere://x")


def test_a_data_set_may_be_in_memory(tmp_path):
    url = f"memory:/{tmp_path}"
    with MDSWriter(out=url, columns={"n": "int"}, compression="gz") as out:
        for n in range(10):
            out.write({"n": n})
    dataset = StreamingDataset(remote=url, local=str(tmp_path / "cache"))
    assert [sample["n"] for sample in dataset] == list(range(10))


def test_aiohttp_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(StorageError, match=r"pip install streamplug\[http\]"):
        HttpStorage("http://127.0.0.1:9/x").read("k")
