"""What is said of disks that are full, and of files that may not be touched."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import AccessDenied, NotFound, StorageError
from streamplug.plugin_kit.error_mapping import storage_error
from streamplug.transfer.disk_errors import map_disk_errors, map_output_errors
from streamplug.transfer.tempdir import TemporaryDirectory

LARGE = 700_000


@pytest.fixture
def disk(tmp_path):
    """A disk of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def write(out: Path, samples: int = 2) -> None:
    with MDSWriter(out=out, columns={"b": "bytes"}, size_limit=LARGE + 1000) as writer:
        for _ in range(samples):
            writer.write({"b": os.urandom(LARGE)})


def test_a_full_output_disk_is_named_with_its_room(disk):
    with pytest.raises(StorageError) as caught:
        write(disk / "out")
    text = str(caught.value)
    assert text.startswith(
        f"{disk}/out/shard.00001.mds: No space left on device: the disk mounted at {disk} "
    )
    assert " of 1048576 bytes free, 700" in text
    assert text.endswith(
        "bytes were needed; make room there, or write to another disk; the write is unfinished: no index "
        "was written"
    )


def test_a_full_cache_disk_is_named_with_its_room(disk, tmp_path):
    write(tmp_path / "far")
    dataset = StreamingDataset(
        remote=str(tmp_path / "far"), local=str(disk / "near"), batch_size=1, predownload=0
    )
    with pytest.raises(
        StorageError, match=rf"the disk mounted at {disk} has \d+ of 1048576"
    ) as caught:
        list(dataset)
    assert "bytes were needed; streamplug needs local=" in str(caught.value)


def test_full_temporary_files_name_the_variable_not_an_option_that_a_command_lacks(
    disk, tmp_path, monkeypatch
):
    pytest.importorskip("streamplug_tools")
    from click.testing import CliRunner

    from streamplug.cli import main

    write(tmp_path / "far")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    (disk / "other").write_bytes(bytes(LARGE))
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "far")])
    text = result.output + str(result.exception or "")
    assert f"the disk mounted at {disk}" in text
    assert "set TMPDIR to a directory on a disk with more room" in text
    assert "local=" not in text


def test_what_is_said_depends_on_what_the_file_is_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    full = OSError(errno.ENOSPC, "No space left on device")
    home = tmp_path / "tmp" / "streamplug-0"
    for place, needed, expected in (
        (tmp_path / "near", 5, "5 bytes were needed; streamplug needs local="),
        (home / "12ab", None, "bytes free; it is among temporary files: set TMPDIR"),
        (home / "kept" / "x", None, "STREAMPLUG_CACHE_DIR or local= for the cache"),
    ):
        with pytest.raises(StorageError) as caught, map_disk_errors(place, needed):
            raise full
        assert expected in str(caught.value)
    with pytest.raises(StorageError, match="write to another disk"), map_output_errors(tmp_path, 5):
        raise full
    denied = pytest.raises(AccessDenied, match="write to a directory that you may")
    with denied, map_output_errors(tmp_path, 5):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("url", ["/data/set/index.json", "file:///data/set/index.json"])
def test_errors_of_local_files_do_not_speak_of_credentials_and_regions(url):
    for error in (PermissionError(errno.EACCES, "x"), FileNotFoundError(errno.ENOENT, "x")):
        text = str(storage_error(error, url))
        assert url in text
        assert not {"credentials", "region", "endpoint"} & set(text.replace(",", " ").split())
    assert "check the owner and mode" in str(storage_error(PermissionError(), url))
    assert "region" in str(storage_error(PermissionError(), "s3://bucket/set/index.json"))


def test_a_directory_without_a_set_does_not_speak_of_regions(tmp_path):
    with pytest.raises(NotFound, match="there is no data set") as caught:
        StreamingDataset(local=str(tmp_path), batch_size=1)
    assert "region" not in str(caught.value)


def test_a_directory_that_may_not_be_read_is_said_to_be_one(tmp_path):
    write(tmp_path / "set", 1)
    (tmp_path / "set" / "index.json").chmod(0)
    if os.access(tmp_path / "set" / "index.json", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(AccessDenied, match="check the owner and mode"):
        StreamingDataset(local=str(tmp_path / "set"), batch_size=1)


def test_temporary_directories_say_so_themselves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="set TMPDIR"):
        TemporaryDirectory()
