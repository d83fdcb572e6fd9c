"""Listing of files, and versions of files."""

from __future__ import annotations

import pytest

from streamplug.errors import NotFound, StorageError, Transient
from streamplug.plugin.location import open_storage
from streamplug.scan.glob import FileSet
from streamplug.scan.listing import file_versions, list_data_files
from streamplug.transfer.storage_wrapper import StorageWrapper


class Counted(StorageWrapper):
    """A storage that counts requests, and may fail to list."""

    def __init__(self, storage, error=None):
        super().__init__(storage)
        self.stats, self.lists, self.error = [], 0, error

    def stat(self, key):
        self.stats.append(key)
        return self._storage.stat(key)

    def list(self, prefix=""):
        self.lists += 1
        if self.error is not None:
            raise self.error
        return self._storage.list(prefix)


@pytest.fixture
def names(tmp_path):
    """Names of many files, beside an index.json."""
    names = [f"part/{n:03}.mds" for n in range(100)]
    (tmp_path / "part").mkdir()
    for name in [*names, "index.json"]:
        (tmp_path / name).write_bytes(b"123")
    return names


def test_versions_of_many_files_take_one_listing(tmp_path, names):
    storage = Counted(open_storage(str(tmp_path)))
    listed = file_versions(storage, names, 0)
    assert (storage.stats, storage.lists) == ([], 1)
    asked = file_versions(storage, names[:3], 0)
    assert (sorted(storage.stats), storage.lists) == (names[:3], 1)
    assert listed[:3] == asked
    assert [name for name, _, _ in listed] == names


def test_missing_files_have_no_versions(tmp_path, names):
    storage = open_storage(str(tmp_path))
    assert file_versions(storage, ["none", names[0]], 0)[0][:2] == (names[0], 3)


def test_a_storage_that_cannot_list_gives_the_version_of_the_index(tmp_path, names):
    storage = Counted(open_storage(str(tmp_path)), StorageError("not supported"))
    assert [name for name, _, _ in file_versions(storage, names, 0)] == ["index.json"]
    with pytest.raises(Transient):
        file_versions(Counted(storage, Transient("busy")), names, 0)


def test_a_directory_that_is_named_like_a_file_is_pointed_out(tmp_path):
    (tmp_path / "data.parquet").mkdir()
    (tmp_path / "data.parquet" / "part-0.parquet").touch()
    storage = open_storage(str(tmp_path))

    def listed(part):
        files = list_data_files(storage, FileSet(str(tmp_path), (part,)), ["parquet"], 0)
        return [file.raw for file in files]

    with pytest.raises(NotFound, match=r"data.parquet .*; if it is a directory, end its name with"):
        listed("data.parquet")
    assert listed("data.parquet/") == ["data.parquet/part-0.parquet"]
