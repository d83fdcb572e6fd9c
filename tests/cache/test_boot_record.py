"""Cached files that are older than the boot of the machine are verified once."""

from __future__ import annotations

import os
import time

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.cache import quota, store
from streamplug.cache.quota import BootRecord


@pytest.fixture
def boot(monkeypatch):
    """A function that starts the machine anew."""

    def start(boot_id: str) -> None:
        monkeypatch.setattr(quota, "boot_id", lambda: boot_id)

    start("first")
    return start


@pytest.fixture
def verified(monkeypatch):
    """The names of the files that are verified."""
    names: list[str] = []
    verify_file = store.verify_file

    def verify(path, *args):
        names.append(path.name)
        verify_file(path, *args)

    monkeypatch.setattr(store, "verify_file", verify)
    return names


def write(out, **options):
    with MDSWriter(out=out, columns={"n": "int"}, max_samples_per_shard=4, **options) as writer:
        for n in range(8):
            writer.write({"n": n})


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def read(**options):
    return [int(sample["n"]) for sample in StreamingDataset(batch_size=1, **options)]


@pytest.mark.parametrize("compression", [None, "gz"])
@pytest.mark.parametrize("local", [True, False])
def test_files_are_verified_once_after_a_boot(tmp_path, boot, verified, local, compression):
    if not local and compression is None:
        pytest.skip("nothing is cached")
    write(tmp_path / "far", compression=compression)
    place = {"remote": str(tmp_path / "far"), "local": str(tmp_path / "near")}
    place = place if local else {"local": str(tmp_path / "far")}
    read(**place)
    verified.clear()
    assert read(**place) == list(range(8))
    assert verified == []
    boot("second")
    for shard in tmp_path.glob("near/shard.00001.mds"):
        shard.write_bytes(bytes(shard.stat().st_size))  # what a loss of power may leave
    assert read(**place) == list(range(8))
    assert {"shard.00000.mds", "shard.00001.mds"} <= {*verified}
    verified.clear()
    assert read(**place) == list(range(8))
    assert verified == []


def test_data_sets_that_are_read_in_place_are_neither_verified_nor_changed(
    tmp_path, boot, verified
):
    write(tmp_path / "far")
    names = names_in(tmp_path / "far")
    boot("second")
    read(local=str(tmp_path / "far"))
    assert (verified, names_in(tmp_path / "far")) == ([], names)


def test_nothing_is_verified_where_the_system_does_not_tell_its_boot(tmp_path, boot, verified):
    write(tmp_path / "far")
    place = {"remote": str(tmp_path / "far"), "local": str(tmp_path / "near")}
    read(**place)
    verified.clear()
    boot("")
    read(**place)
    assert verified == []


def test_processes_share_a_record_and_torn_lines_are_passed_over(tmp_path, boot):
    state = tmp_path / ".streamplug"
    state.mkdir()
    one, other = BootRecord(tmp_path), BootRecord(tmp_path)
    one.add("a")
    assert ("a" in other, "b" in other) == (True, False)
    with (state / "boot-first").open("a") as file:
        file.write('"b')
    other.add("c")
    assert [name in one for name in "abc"] == [True, False, True]
    boot("second")
    assert "a" not in BootRecord(tmp_path)


def test_records_of_boots_long_ago_are_removed(tmp_path, boot):
    state = tmp_path / ".streamplug"
    state.mkdir()
    for name in ("first", "other", "old"):
        (state / f"boot-{name}").touch()
    long_ago = time.time() - 10 * 24 * 3600
    os.utime(state / "boot-old", (long_ago, long_ago))
    os.utime(state / "boot-first", (long_ago, long_ago))
    BootRecord(tmp_path).remove_old()
    assert names_in(state) == ["boot-first", "boot-other"]
