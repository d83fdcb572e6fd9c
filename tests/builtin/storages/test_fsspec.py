from __future__ import annotations

import errno
import os
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from streamplug_testing.storage import StorageTests

from streamplug.builtin.storages.fsspec import AnyFsspec
from streamplug.errors import AccessDenied, ConfigError, StorageError
from streamplug.plugin import open_storage
from streamplug.plugin_kit.fsspec_storage import version_of


class TestLocal(StorageTests):
    @pytest.fixture(autouse=True)
    def location(self, tmp_path_factory):
        self.root = tmp_path_factory.mktemp("storage") / "set"

    def make_storage(self):
        return AnyFsspec(str(self.root))

    def put_raw(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.root / key).read_bytes()


class TestMemory(StorageTests):
    deviations: ClassVar = {"test_works_in_a_spawned_child": "memory belongs to one process"}

    @pytest.fixture(autouse=True)
    def location(self):
        self.root = f"/{uuid.uuid4().hex}"
        yield
        for name in [name for name in MemoryFileSystem.store if name.startswith(self.root)]:
            del MemoryFileSystem.store[name]

    def make_storage(self):
        return AnyFsspec(f"memory:/{self.root}")

    def put_raw(self, key, data):
        MemoryFileSystem().pipe_file(f"{self.root}/{key}", data)

    def get_raw(self, key):
        return MemoryFileSystem.store[f"{self.root}/{key}"].getvalue()


class BreaksOff(AnyFsspec):
    def put(self, path, target):
        Path(target).write_bytes(path.read_bytes()[:3])
        raise OSError(28, "No space left on device")


def test_a_failed_upload_leaves_the_old_object_and_no_part(tmp_path):
    storage = BreaksOff(str(tmp_path / "set"))
    storage.write("k", b"old")
    (tmp_path / "source").write_bytes(b"newer")
    with pytest.raises(StorageError, match="set/k: No space left on device: the disk"):
        storage.upload(tmp_path / "source", "k")
    assert storage.read("k") == b"old"
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["k"]


def test_what_a_killed_writer_left_is_no_object(tmp_path):
    (tmp_path / ".streamplug-0123").write_bytes(b"half")
    (tmp_path / "k").write_bytes(b"whole")
    assert [o.key for o in AnyFsspec(str(tmp_path)).list()] == ["k"]


def test_the_version_of_a_link_changes_with_its_target(tmp_path):
    target, storage = tmp_path / "blob", AnyFsspec(str(tmp_path / "set"))
    target.write_bytes(b"old")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/k").symlink_to(target)
    os.utime(target, (1e9, 1e9))

    def objects():
        (listed,) = storage.list()
        assert storage.stat("k") == listed
        return listed

    old = objects()
    target.write_bytes(b"new")
    os.utime(target, (2e9, 2e9))
    assert objects().size == old.size == 3
    assert objects().version != old.version
    target.unlink()
    assert [found.key for found in storage.list()] == ["k"]


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


def test_what_stands_in_the_way_is_named(tmp_path):
    storage = AnyFsspec(str(tmp_path))
    storage.write("a/b", b"x")
    with pytest.raises(StorageError, match="/a: a directory has this name"):
        storage.write("a", b"x")
    with pytest.raises(StorageError, match="/a/b/c: a file has the name of its directory"):
        storage.write("a/b/c", b"x")
    assert [o.key for o in storage.list()] == ["a/b"]


def test_deleting_a_directory_is_deleting_nothing(tmp_path):
    storage = AnyFsspec(str(tmp_path))
    storage.write("a/b", b"x")
    storage.delete("a")
    assert storage.exists("a/b")


class InvertsRanges(AnyFsspec):
    asynchronous = True

    def read_range(self, key, start, stop):
        return bytes(byte ^ 255 for byte in super().read_range(key, start, stop))


def test_an_overridden_read_of_a_range_is_called_for_several(tmp_path):
    (tmp_path / "k").write_bytes(b"\x00\x01\x02\x03")
    storage = InvertsRanges(str(tmp_path))
    assert storage.read_range("k", 0, 2) == b"\xff\xfe"
    assert storage.read_ranges("k", [(0, 1), (2, 4)]) == [b"\xff", b"\xfd\xfc"]
    assert storage.read_many([("k", 0, 1), ("k", 2, 4)]) == [b"\xff", b"\xfd\xfc"]


class Denied(LocalFileSystem):
    def cat_file(self, path, start=None, end=None, **kwargs):
        raise PermissionError(13, "secret-token", path)

    def ls(self, path, detail=False, **kwargs):
        raise PermissionError(13, "secret-token", path)

    def info(self, path, **kwargs):
        raise PermissionError(13, "secret-token", path)


class AlwaysDenied(AnyFsspec):
    def filesystem(self):
        return Denied(skip_instance_cache=True)


def test_no_permission_is_access_denied(tmp_path):
    storage = AlwaysDenied(str(tmp_path))
    for operation in (
        lambda: storage.read("k"),
        lambda: list(storage.list()),
        lambda: storage.download("k", tmp_path / "target"),
    ):
        with pytest.raises(AccessDenied, match=f"no permission for {tmp_path}") as caught:
            operation()
        assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_directory_that_cannot_be_read_is_not_skipped(tmp_path, monkeypatch):
    listed = LocalFileSystem.ls

    def ls(filesystem, path, *args, **kwargs):
        if path.endswith("/secret"):
            raise PermissionError(13, "Permission denied", path)
        return listed(filesystem, path, *args, **kwargs)

    storage = AnyFsspec(str(tmp_path))
    storage.write("a/k", b"")
    storage.write("a/secret/k", b"")
    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(AccessDenied, match=f"no permission for {tmp_path}/a/secret;"):
        storage.list()


def test_the_directory_of_a_file_system_for_lost_files_need_not_be_readable(tmp_path, monkeypatch):
    listed = LocalFileSystem.ls

    def ls(filesystem, path, *args, **kwargs):
        if path.endswith("/lost+found"):
            raise PermissionError(13, "Permission denied", path)
        return listed(filesystem, path, *args, **kwargs)

    (tmp_path / "lost+found").mkdir()
    storage = AnyFsspec(str(tmp_path))
    storage.write("a/k", b"")
    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    assert [info.key for info in storage.list()] == ["a/k"]
    with pytest.raises(AccessDenied):
        AnyFsspec(f"{tmp_path}/lost+found").list()


def test_the_root_directory_is_a_location():
    storage = AnyFsspec("/")
    assert storage.path("a/b") == "/a/b"
    assert storage.exists(__file__.lstrip("/"))


@pytest.mark.parametrize("url", ["memory:/set", "ftp:/host/set"])
def test_a_url_with_one_slash_is_no_path_in_the_working_directory(url):
    with pytest.raises(ConfigError, match=f"{url}: write [a-z]*:// with two slashes"):
        open_storage(url)


def test_a_path_with_colons_is_no_chain_of_protocols(tmp_path):
    storage = AnyFsspec(f"{tmp_path}/run::1/set")
    storage.write("k", b"x")
    assert (tmp_path / "run::1/set/k").read_bytes() == b"x"
    assert [o.key for o in storage.list()] == ["k"]


def test_a_chain_of_protocols(tmp_path):
    (tmp_path / "k").write_bytes(b"data")
    storage = AnyFsspec(
        f"simplecache::file://{tmp_path}", simplecache={"cache_storage": str(tmp_path / "cache")}
    )
    assert storage.read("k") == b"data"
    storage.write("new/k", b"more")
    assert (tmp_path / "new" / "k").read_bytes() == b"more"


def test_a_client_that_is_not_installed_is_named():
    with pytest.raises(StorageError, match=r"^gdrive://x/k: .*install"):
        AnyFsspec("gdrive://x").read("k")


def test_storages_share_no_file_system(tmp_path):
    a, b = AnyFsspec(str(tmp_path)), AnyFsspec(str(tmp_path))
    assert a.filesystem() is not b.filesystem()


def test_two_threads_open_one_file_system(tmp_path):
    class Slow(AnyFsspec):
        made = 0

        def filesystem_options(self):
            Slow.made += 1
            time.sleep(0.05)
            return {}

    storage = Slow(str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: storage.filesystem(), range(4)))
    assert (Slow.made, len({id(f) for f in found})) == (1, 1)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_named_where_a_file_must_not_exist(
    tmp_path, monkeypatch, number
):
    def link(source, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.link", link)
    with pytest.raises(
        StorageError, match=f"{tmp_path}/view/key: its file system has no hard links"
    ):
        AnyFsspec(str(tmp_path / "view")).create("key", b"data")
    assert list((tmp_path / "view").iterdir()) == []
