from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from streamplug.errors import (
    AccessDenied,
    ConfigError,
    CorruptShardError,
    HashMismatchError,
    NotFound,
    StorageError,
)
from streamplug.plugin_kit.file_commit import stage_file
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.verify import verify_file
from streamplug.types import FileInfo

DATA = b"0123456789"
SHA1 = hashlib.sha1(DATA).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shard.mds"
    path.write_bytes(DATA)
    return path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_partial_file_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "deep" / "er" / "file"
    target.parent.mkdir(parents=True)
    with stage_file(target) as part:
        part.write_bytes(DATA)
        assert not target.exists()
        assert part.parent == target.parent
    assert target.read_bytes() == DATA
    assert names(target.parent) == ["file"]


def test_a_partial_file_that_fails_leaves_the_old_one(path):
    def fail() -> None:
        with stage_file(path) as part:
            part.write_bytes(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match=r"stop"):
        fail()
    assert path.read_bytes() == DATA
    assert names(path.parent) == ["shard.mds"]


def test_a_partial_file_of_a_killed_process_is_written_over(path):
    (path.parent / ".shard.mds.tmp").write_bytes(b"left behind, and longer than the new one")
    with stage_file(path) as part:
        part.write_bytes(b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["shard.mds"]


@pytest.mark.parametrize("size", [0, 9, 11])
def test_a_file_of_another_size_is_refused(path, size):
    with pytest.raises(CorruptShardError) as caught:
        verify_file(path, FileInfo("shard.mds", size, {"sha1": SHA1}), None, "s3://b/shard.mds")
    assert str(caught.value) == (
        f"s3://b/shard.mds has 10 bytes, the index says {size}; "
        "it was cut short or replaced, write or copy it again"
    )


@pytest.mark.parametrize("digest", [SHA1, SHA1.upper()])
@pytest.mark.parametrize("algorithm", [None, "sha1"])
def test_a_file_with_the_right_digest_passes(path, digest, algorithm):
    verify_file(path, FileInfo("shard.mds", 10, {"sha1": digest}), algorithm, "it")


@pytest.mark.parametrize("algorithm", [None, "sha1"])
def test_a_file_with_another_digest_is_refused(path, algorithm):
    path.write_bytes(b"0123456780")
    with pytest.raises(HashMismatchError) as caught:
        verify_file(path, FileInfo("shard.mds", 10, {"sha1": SHA1}), algorithm, "it")
    assert str(caught.value).startswith("it has sha1 ")
    assert f"the index says {SHA1}; its content is damaged, write or copy it again" in str(
        caught.value
    )


def test_the_fastest_of_several_digests_is_checked(path):
    wrong = {"xxh64": "0" * 16, "sha256": SHA256, "sha1": SHA1}
    with pytest.raises(HashMismatchError, match=r"it has xxh64"):
        verify_file(path, FileInfo("shard.mds", 10, wrong), None, "it")
    verify_file(path, FileInfo("shard.mds", 10, wrong), "sha256", "it")


def test_a_digest_that_is_on_no_list_of_fast_ones_is_checked_too(path):
    wrong = {"sha3_256": "00"}
    with pytest.raises(HashMismatchError, match=r"it has sha3_256"):
        verify_file(path, FileInfo("shard.mds", 10, wrong), None, "it")


def test_unknown_digests_are_passed_over_unless_asked_for(path):
    file = FileInfo("shard.mds", 10, {"crc99": "00"})
    verify_file(path, file, None, "it")
    with pytest.raises(ConfigError, match=r"unknown hash 'crc99'"):
        verify_file(path, file, "crc99", "it")


@pytest.mark.parametrize(
    ("hashes", "only"), [({}, "no hashes"), ({"md5": "00", "sha1": SHA1}, "md5, sha1")]
)
def test_a_digest_that_the_index_lacks_is_refused(path, hashes, only):
    with pytest.raises(ConfigError) as caught:
        verify_file(path, FileInfo("shard.mds", 10, hashes), "xxh64", "/data/shard.mds")
    assert str(caught.value) == (
        f"validate_hash='xxh64', but the index has for /data/shard.mds only: {only}"
    )


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, AccessDenied),
        (errno.EPERM, AccessDenied),
        (errno.ENOSPC, StorageError),
        (errno.EROFS, StorageError),
        (errno.ENAMETOOLONG, StorageError),
    ],
)
def test_what_the_system_refuses_becomes_an_error_of_ours(number, kind):
    with pytest.raises(StorageError) as caught, map_disk_errors(Path("/cache")):
        raise OSError(number, "refused")
    assert type(caught.value) is kind
    said = (
        "No space left on device: the disk mounted at / has"
        if number == errno.ENOSPC
        else "refused;"
    )
    assert str(caught.value).startswith(f"/cache: {said} ")
    assert "streamplug needs local= to be" in str(caught.value)


def test_that_too_many_files_are_open_is_not_blamed_on_the_directory(tmp_path):
    said = r"Too many open files; raise the limit .*ulimit -n"
    with pytest.raises(StorageError, match=said), map_disk_errors(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_file_that_may_not_be_read_is_not_blamed_on_the_cache(path, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: mode == os.F_OK)  # root may read any
    said = r"shard.mds: Permission denied; check the owner and mode of the file and of its"
    with pytest.raises(AccessDenied, match=said), map_disk_errors(path.parent):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_the_file_that_the_system_names_is_named():
    with (
        pytest.raises(StorageError, match=r"^/cache/file: No space left"),
        map_disk_errors(Path("/cache")),
    ):
        raise OSError(errno.ENOSPC, "no room", "/cache/file")


def test_errors_of_ours_pass_as_they_are():
    with pytest.raises(NotFound, match=r"^just so$"), map_disk_errors(Path("/cache")):
        raise NotFound("just so")


def test_an_error_is_told_where_there_is_no_directory_for_temporary_files(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/missing/directory"])
    with (
        pytest.raises(StorageError, match="/cache/part: Read-only file system; streamplug needs"),
        map_disk_errors(Path("/cache")),
    ):
        raise OSError(errno.EROFS, "Read-only file system", "/cache/part")
