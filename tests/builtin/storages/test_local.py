from __future__ import annotations

import errno
import io
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from streamplug_testing.storage import StorageTests

from streamplug.builtin import local_storage as local
from streamplug.builtin import staged_file
from streamplug.builtin.local_storage import LocalStorage
from streamplug.builtin.staged_file import StagedFile
from streamplug.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigError,
    NotFound,
    ObjectReplaced,
    StorageError,
)
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside


class TestLocal(StorageTests):
    @pytest.fixture(autouse=True)
    def location(self, tmp_path_factory):
        self.root = tmp_path_factory.mktemp("storage") / "set"

    def make_storage(self):
        return LocalStorage(str(self.root))

    def put_raw(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.root / key).read_bytes()


def test_what_a_killed_writer_left_is_no_object(tmp_path):
    (tmp_path / ".streamplug-0123").write_bytes(b"half")
    (tmp_path / "k").write_bytes(b"whole")
    assert [o.key for o in LocalStorage(str(tmp_path)).list()] == ["k"]


KILLED = """
import os, signal, sys
from pathlib import Path
from streamplug.builtin import local_storage

root, operation = sys.argv[1:]

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def copy(source, target):
    target.write(source.read(3))
    target.flush()
    kill()

local_storage._copy, os.fsync = copy, kill
storage = local_storage.LocalStorage(f"{root}/set")
if operation == "upload":
    storage.upload(Path(root, "source"), "k")
else:
    getattr(storage, operation)("k", b"newer")
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has unnamed files")
@pytest.mark.parametrize("operation", ["upload", "write", "create"])
def test_a_killed_writer_leaves_nothing(tmp_path, operation):
    (tmp_path / "source").write_bytes(b"newer")
    (tmp_path / "set").mkdir()
    storage, old = LocalStorage(str(tmp_path / "set")), {}
    if operation != "create":
        old = {"k": b"old"}
        storage.write("k", b"old")
    command = [sys.executable, "-c", KILLED, str(tmp_path), operation]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    assert contents(tmp_path / "set") == old
    storage.upload(tmp_path / "source", "k")
    assert contents(tmp_path / "set") == {"k": b"newer"}


def write_and_die(root):
    """Write a file in a process that is killed when it would rename the complete file."""
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    LocalStorage(root).write("k", b"newer")


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has unnamed files")
def test_what_a_writer_left_that_was_killed_before_the_rename_is_removed_by_the_next(tmp_path):
    storage, folder = LocalStorage(str(tmp_path / "set")), tmp_path / "set"
    storage.write("k", b"old")
    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(
            target=write_and_die, args=(str(folder),)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        left = contents(folder)
        assert left.pop("k") == b"old"
        assert list(left.values()) == [b"newer"]  # one, however many were killed
    storage.write("other", b"x")
    assert [o.key for o in storage.list()] == ["k", "other"]
    storage.write("k", b"newest")
    assert contents(folder) == {"k": b"newest", "other": b"x"}


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has unnamed files")
@pytest.mark.parametrize("at", ["rename", "link"])
def test_writers_of_one_file_at_once_take_turns(tmp_path, monkeypatch, at):
    storage, rename, link = LocalStorage(str(tmp_path)), Path.replace, StagedFile._link
    turns = iter([True])

    def write_between():
        if next(turns, False):
            storage.write("k", b"of another writer")

    def replace(source, target):
        write_between()
        return rename(source, target)

    def link_then_write(staged, path):
        link(staged, path)
        write_between()

    if at == "rename":
        monkeypatch.setattr(Path, "replace", replace)
    else:
        monkeypatch.setattr(StagedFile, "_link", link_then_write)
    storage.write("k", b"of the last one")
    assert contents(tmp_path) == {"k": b"of the last one"}


def test_a_file_that_cannot_get_its_name_is_removed(tmp_path):
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "k").mkdir()
    with pytest.raises(StorageError, match="/k"):
        storage.write("k", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def contents(folder):
    """Return the content of each file of a directory."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("missing", ["in the system", "in the file system", "because of /proc"])
def test_files_are_replaced_and_created_where_there_are_no_unnamed_ones(
    tmp_path, monkeypatch, missing
):
    make, rename, sources = os.open, Path.replace, []

    def refuse(path, flags, *args, **kwargs):
        if flags & os.O_DIRECTORY and flags & os.O_RDWR:  # as those of O_TMPFILE
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return make(path, flags, *args, **kwargs)

    def replace(source, target):
        sources.append(source.read_bytes())
        rename(source, target)

    if missing == "in the system":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif missing == "in the file system":
        monkeypatch.setattr(os, "open", refuse)
    else:
        monkeypatch.setattr(staged_file, "_DESCRIPTORS", str(tmp_path / "proc"))
    monkeypatch.setattr(Path, "replace", replace)
    storage = LocalStorage(str(tmp_path / "set"))
    (tmp_path / "source").write_bytes(b"newer")
    storage.write("k", b"old")
    storage.upload(tmp_path / "source", "k")
    storage.create("other", b"first")
    with pytest.raises(AlreadyExists, match="set/other exists"):
        storage.create("other", b"second")
    assert contents(tmp_path / "set") == {"k": b"newer", "other": b"first"}
    assert sources == [b"old", b"newer"]


def test_the_permissions_of_a_new_file_are_those_of_the_process(tmp_path):
    storage, mask = LocalStorage(str(tmp_path)), os.umask(0o027)
    try:
        storage.write("k", b"data")
        storage.create("other", b"data")
    finally:
        os.umask(mask)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("k", "other")} == {0o640}


def test_the_version_of_a_link_changes_with_its_target(tmp_path):
    target, storage = tmp_path / "blob", LocalStorage(str(tmp_path / "set"))
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


def test_what_stands_in_the_way_is_named(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.write("a/b", b"x")
    with pytest.raises(StorageError, match="/a: a directory has this name"):
        storage.write("a", b"x")
    with pytest.raises(StorageError, match="/a/b/c: a file has the name of its directory"):
        storage.write("a/b/c", b"x")
    assert [o.key for o in storage.list()] == ["a/b"]


def test_deleting_a_directory_is_deleting_nothing(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.write("a/b", b"x")
    storage.delete("a")
    assert storage.exists("a/b")


def test_a_path_with_colons_is_no_chain_of_protocols(tmp_path):
    storage = LocalStorage(f"{tmp_path}/run::1/set")
    storage.write("k", b"x")
    assert (tmp_path / "run::1/set/k").read_bytes() == b"x"
    assert [o.key for o in storage.list()] == ["k"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_named_where_a_file_must_not_exist(
    tmp_path, monkeypatch, number
):
    def link(source, target, **_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.link", link)
    with pytest.raises(
        StorageError, match=f"{tmp_path}/view/key: its file system has no hard links"
    ):
        LocalStorage(str(tmp_path / "view")).create("key", b"data")
    assert list((tmp_path / "view").iterdir()) == []


def test_a_failed_upload_leaves_the_old_object_and_no_part(tmp_path, monkeypatch):
    def copy(source, target):
        target.write(source.read(3))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "_copy", copy)
    storage = LocalStorage(str(tmp_path / "set"))
    storage.write("k", b"old")
    (tmp_path / "source").write_bytes(b"newer")
    with pytest.raises(StorageError, match="set/k: No space left on device: the disk"):
        storage.upload(tmp_path / "source", "k")
    assert storage.read("k") == b"old"
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["k"]


def denying(operation, suffix):
    """Return an operation of `os` that is denied for the paths with a suffix."""

    def denied(path, *args, **kwargs):
        if str(path).endswith(suffix):
            raise PermissionError(errno.EACCES, "secret-token", path)
        return operation(path, *args, **kwargs)

    return denied


def test_no_permission_is_access_denied(tmp_path, monkeypatch):
    monkeypatch.setattr("io.open", denying(io.open, "/k"))
    for name in ("open", "stat", "scandir"):
        monkeypatch.setattr(os, name, denying(getattr(os, name), ("/k", "/set")))
    if accessor := getattr(
        pathlib, "_NormalAccessor", None
    ):  # of Python 3.10, which has taken them
        for name, function in (("open", io.open), ("stat", os.stat), ("scandir", os.scandir)):
            monkeypatch.setattr(accessor, name, staticmethod(function))
    storage = LocalStorage(f"{tmp_path}/set")
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.read_range("k", 0, 1),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.download("k", tmp_path / "target"),
    ):
        with pytest.raises(AccessDenied, match=f"no permission for {tmp_path}") as caught:
            operation()
        assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_directory_that_cannot_be_read_is_not_skipped(tmp_path, monkeypatch):
    storage = LocalStorage(str(tmp_path))
    storage.write("a/k", b"")
    storage.write("a/secret/k", b"")
    monkeypatch.setattr(os, "scandir", denying(os.scandir, "/secret"))
    with pytest.raises(AccessDenied, match=f"no permission for {tmp_path}/a/secret;"):
        storage.list()


def test_the_directory_of_a_file_system_for_lost_files_need_not_be_readable(tmp_path, monkeypatch):
    (tmp_path / "lost+found").mkdir()
    storage = LocalStorage(str(tmp_path))
    storage.write("a/k", b"")
    monkeypatch.setattr(os, "scandir", denying(os.scandir, "/lost+found"))
    assert [info.key for info in storage.list()] == ["a/k"]
    with pytest.raises(AccessDenied):
        LocalStorage(f"{tmp_path}/lost+found").list()


def test_a_listing_below_a_file_or_nothing_is_empty(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.write("k", b"")
    assert (
        list(storage.list("k/"))
        == list(storage.list("k/deeper/"))
        == list(storage.list("no/"))
        == []
    )


def test_links_to_directories_are_not_followed(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.write("a/k", b"")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert [info.key for info in storage.list()] == ["a/k", "a/loop"]


def test_a_time_of_zero_is_no_version(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.write("k", b"")
    os.utime(tmp_path / "k", (5.5, 5.5))
    assert storage.stat("k").version == "5.5"
    os.utime(tmp_path / "k", (0, 0))
    assert storage.stat("k").version == str((tmp_path / "k").stat().st_ctime)


def test_the_root_directory_is_a_location():
    storage = LocalStorage("/")
    assert storage.path("a/b") == "/a/b"
    assert storage.exists(__file__.lstrip("/"))


@pytest.mark.parametrize("url", ["file://{}", "file:{}", "FILE://{}", "local://{}", "{}/"])
def test_a_url_of_a_file_is_a_path(tmp_path, url):
    (tmp_path / "k").write_bytes(b"data")
    assert LocalStorage(url.format(tmp_path)).read("k") == b"data"


@pytest.mark.parametrize("url", ["s3://bucket/set", "memory://set"])
def test_another_url_is_no_path_in_the_working_directory(url):
    with pytest.raises(ConfigError, match=f"^{url}: expected a path or a file:// URL"):
        LocalStorage(url)


def test_a_name_that_no_file_can_have_is_a_storage_error(tmp_path):
    for operation in (LocalStorage(str(tmp_path)).read, LocalStorage(str(tmp_path)).stat):
        with pytest.raises(StorageError, match="ValueError"):
            operation("a\0b")


def test_a_range_far_beyond_the_end_takes_no_memory(tmp_path):
    (tmp_path / "k").write_bytes(b"0123456789")
    storage = LocalStorage(str(tmp_path))
    assert storage.read_ranges("k", [(8, 1 << 60), (4, 6), (3, 3), (90, 95)]) == [
        b"89",
        b"45",
        b"",
        b"",
    ]


def test_a_range_comes_in_several_calls(tmp_path, monkeypatch):
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: read(file, min(size, 3), at))
    (tmp_path / "k").write_bytes(b"0123456789")
    assert LocalStorage(str(tmp_path)).read_range("k", 1, 9) == b"12345678"


def test_a_file_that_is_written_while_it_is_copied_is_refused(tmp_path, monkeypatch):
    copy = local._copy

    def late(source, target):
        copy(source, target)
        (tmp_path / "k").write_bytes(b"newer")

    (tmp_path / "k").write_bytes(b"old")
    monkeypatch.setattr(local, "_copy", late)
    with pytest.raises(ObjectReplaced, match=f"^{tmp_path}/k: it was replaced"):
        LocalStorage(str(tmp_path)).download("k", tmp_path / "target")


def test_a_file_that_is_replaced_while_it_is_copied_is_the_old_one(tmp_path, monkeypatch):
    copy, storage = local._copy, LocalStorage(str(tmp_path))

    def late(source, target):
        monkeypatch.setattr(local, "_copy", copy)
        storage.write("k", b"newer")
        copy(source, target)

    storage.write("k", b"old")
    monkeypatch.setattr(local, "_copy", late)
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert storage.read("k") == b"newer"


@pytest.mark.parametrize("number", [None, errno.EINVAL, errno.ENOTSOCK])
@pytest.mark.parametrize("size", [0, 5, 30])
def test_copies_are_whole_with_and_without_sendfile(tmp_path, monkeypatch, number, size):
    def sendfile(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local, "_COPY_BYTES", 10)
    if number is not None:
        monkeypatch.setattr(os, "sendfile", sendfile)
    data = bytes(range(size))
    (tmp_path / "k").write_bytes(data)
    storage = LocalStorage(str(tmp_path))
    storage.download("k", tmp_path / "target")
    storage.upload(tmp_path / "target", "again")
    assert storage.read("again") == data


@pytest.mark.parametrize("sends", [True, False])
def test_a_copy_ends_when_the_consumer_stops(tmp_path, monkeypatch, sends):
    scope, send = Scope(), os.sendfile

    def sendfile(*args):
        scope.stop()
        if not sends:
            raise OSError(errno.EINVAL, "Invalid argument")
        return send(*args)

    monkeypatch.setattr(local, "_COPY_BYTES", 10)
    monkeypatch.setattr(os, "sendfile", sendfile)
    (tmp_path / "k").write_bytes(bytes(30))
    with inside(scope), pytest.raises(Cancelled):
        LocalStorage(str(tmp_path)).download("k", tmp_path / "target")
    assert (tmp_path / "target").stat().st_size <= 10


def test_no_range_is_read_for_a_consumer_that_stopped(tmp_path):
    (tmp_path / "k").write_bytes(b"data")
    scope = Scope()
    scope.stop()
    with inside(scope), pytest.raises(Cancelled):
        LocalStorage(str(tmp_path)).read_ranges("k", [(0, 1)])


def test_a_link_that_leads_nowhere_is_missing(tmp_path):
    (tmp_path / "k").symlink_to(tmp_path / "gone")
    with pytest.raises(NotFound, match=f"^{tmp_path}/k does not exist"):
        LocalStorage(str(tmp_path)).stat("k")
