"""Disks that fail while something is written: an error of ours names the disk, the same call mends it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamplug import MDSWriter, write_parts
from streamplug.errors import NotFound, StorageError, StreamplugError
from tests.faults.ways import CACHES, COLUMNS, WAYS, sample

REMEDIES = {
    errno.ENOSPC: "bytes free.*make room there",
    errno.EDQUOT: "bytes free.*your quota",
    errno.EFBIG: "ulimit -f",
    errno.EIO: "the disk is failing",
    errno.EROFS: "a disk that can be written to",
}


@contextmanager
def limited(kind: int, value: int) -> Iterator[None]:
    """Lower a limit of this process."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    """A way to write that has done so in another directory, so that everything is imported."""
    found = WAYS[request.param]
    found.name = request.param
    for name in ("other", "disk"):
        (tmp_path / name).mkdir()
        try:
            found.prepare(tmp_path / name)
            if name == "other":
                found.act(tmp_path / name)
        except ModuleNotFoundError as error:
            pytest.skip(str(error))
    return found


def check_mended(way, disk: Path) -> None:
    try:
        found = way.read(disk)
    except NotFound:
        found = None
    assert found is None or way.name == "uploads" or found in (*way.old, way.new)
    if found != way.new:
        way.act(disk)
    assert way.read(disk) == way.new


def test_a_disk_that_fails_when_it_is_synced(way, tmp_path, monkeypatch, caplog):
    if way.name in CACHES:
        pytest.skip("shards of caches are not synced")
    caplog.set_level("CRITICAL")
    for number, remedy in REMEDIES.items():

        def fail(_: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(
                StreamplugError, match=f"{os.strerror(number)}.*({remedy}|set TMPDIR)"
            ):
                way.act(tmp_path / "disk")
    check_mended(way, tmp_path / "disk")


def test_a_limit_of_the_file_size(way, tmp_path, caplog):
    caplog.set_level("CRITICAL")
    with (
        pytest.raises(StreamplugError, match=r"File too large; .*ulimit -f"),
        limited(resource.RLIMIT_FSIZE, 10),
    ):
        way.act(tmp_path / "disk")
    check_mended(way, tmp_path / "disk")


def test_too_many_open_files(way, tmp_path, caplog):
    caplog.set_level("CRITICAL")
    with (
        pytest.raises(StreamplugError, match=r"oo many .*open.*ulimit -n"),
        limited(resource.RLIMIT_NOFILE, 3),
    ):
        way.act(tmp_path / "disk")
    check_mended(way, tmp_path / "disk")


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("count", [3, 4])
def test_a_directory_that_vanishes(tmp_path, count, durable):
    out = tmp_path / "set"
    options = {"columns": COLUMNS, "max_samples_per_shard": 2, "durable": durable}
    writer = MDSWriter(out=out, **options)
    for n in range(count):
        writer.write(sample(n))
    shutil.rmtree(out)
    with pytest.raises(StorageError, match=r"set/\S+: No such file.*the directory was removed"):
        writer.finish()
    assert not out.exists()


@pytest.mark.parametrize("content", [None, "", "{", "[" * 100_000])
def test_a_plan_of_parts_that_vanishes_or_is_damaged(tmp_path, content):
    def samples(n):
        if content is None:
            shutil.rmtree(tmp_path / "set")
        else:
            (tmp_path / "set/parts.json").write_text(content)
        return [sample(n)]

    with pytest.raises(StreamplugError, match=r"finds no parts\.json"):
        write_parts(samples, [1], columns=COLUMNS, out=tmp_path / "set", processes=0)


def test_a_disk_that_can_only_be_read(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(StorageError, match=r"set: Read-only file system; write to a disk that can"):
        MDSWriter(out=tmp_path / "set", columns=COLUMNS)
