"""Listing of files, and versions of files."""

from __future__ import annotations

import glob
import re

import pytest
from streamplug_files import ScannableFormat
from streamplug_files.glob import FileSet, parse_locations
from streamplug_files.listing import list_data_files

from streamplug.errors import ConfigError, NotFound, StorageError, Transient
from streamplug.plugin.location import open_storage
from streamplug.transfer.file_stat import file_versions
from streamplug.transfer.stall_timeout import StorageWrapper


class Raw(ScannableFormat):
    """A format of which only the names of files matter."""

    suffix = "raw"

    def columns(self, entry, make_encoding):
        return ()

    def open(self, shard, files, columns):
        raise NotImplementedError

    def scan(self, file):
        raise NotImplementedError


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
    (tmp_path / "data.raw").mkdir()
    (tmp_path / "data.raw" / "part-0.raw").touch()
    storage = open_storage(str(tmp_path))

    def listed(part):
        files, _ = list_data_files(storage, FileSet(str(tmp_path), (part,)), Raw(), 0)
        return [file.raw for file in files]

    with pytest.raises(NotFound, match=r"data.raw .*; if it is a directory, end its name with"):
        listed("data.raw")
    assert listed("data.raw/") == ["data.raw/part-0.raw"]


def test_a_location_without_files_is_an_error_beside_others(tmp_path):
    for name in ("a/0.raw", "a/1.raw", "b/0.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def listed(*locations):
        paths = [f"{tmp_path}/{location}" for location in locations]
        files = parse_locations(paths, lambda name: name.endswith(".raw"))
        data_files, _ = list_data_files(open_storage(files.root), files, Raw(), 0)
        return [file.raw for file in data_files]

    assert listed("a/*.{raw,txt}", "a/0.raw") == ["0.raw", "1.raw", "0.raw"]
    for empty, shown in (
        ("b", "b/"),
        ("c", "c/"),
        ("b/*.raw", "b/*.raw"),
        ("a/9*.raw", "9*.raw"),
        ("b/0.txt", "b/0.txt/"),
        ("b/*.{raw,r}", "b/*.raw"),
    ):
        with pytest.raises(
            NotFound, match=rf"no \.raw file among {re.escape(shown)}; check remote="
        ):
            listed("a/0.raw", empty, "a")


def listed(folder, *parts):
    files, hidden = list_data_files(open_storage(str(folder)), FileSet("", parts), Raw(), 0)
    return [file.stored.key for file in files], hidden


@pytest.fixture
def hidden_tree(tmp_path):
    """A directory with hidden files and directories."""
    names = ("a.raw", "._a.raw", "sub/b.raw", "sub/.b.raw.gz", ".ipynb_checkpoints/a.raw")
    for name in (*names, "sub/.cache/c.raw", ".cache/sub/d.raw"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("", ["a.raw"]),
        ("*", ["a.raw"]),
        ("?.r*", ["a.raw"]),
        ("[!x]*.raw", ["a.raw"]),
        ("[.]*.raw", []),
        ("**/*.raw", ["a.raw", "sub/b.raw"]),
        ("**", ["a.raw", "sub/b.raw"]),
        ("**.raw", ["a.raw", "sub/b.raw"]),
        ("s**.raw", ["sub/b.raw"]),
        ("*/*.raw", ["sub/b.raw"]),
        ("sub/*", ["sub/b.raw"]),
        ("sub/", ["sub/b.raw"]),
        (".*.raw", ["._a.raw"]),
        (".*/*.raw", [".ipynb_checkpoints/a.raw"]),
        ("**/.*", ["._a.raw", "sub/.b.raw.gz"]),
        (".cache/**/*.raw", [".cache/sub/d.raw"]),
        ("**/.cache/*.raw", ["sub/.cache/c.raw"]),
        ("sub/.cache/", ["sub/.cache/c.raw"]),
        ("._a.raw", ["._a.raw"]),
        ("sub/.cache/c.raw", ["sub/.cache/c.raw"]),
    ],
)
def test_hidden_files_need_a_pattern_with_their_dot(hidden_tree, part, keys):
    if keys:
        assert listed(hidden_tree, part)[0] == keys
    else:
        with pytest.raises(NotFound, match=r"hidden files, such as \._a.raw, must be named"):
            listed(hidden_tree, part)


@pytest.mark.parametrize(
    "part", ["*.raw", "**/*.raw", "*/*.raw", "s*/*", "**/.*", "**/.cache/*.raw"]
)
def test_patterns_match_what_glob_matches(hidden_tree, part):
    expected = glob.glob(part, root_dir=hidden_tree, recursive=True)  # noqa: PTH207 - Path.glob finds hidden files
    assert listed(hidden_tree, part)[0] == sorted(
        n for n in expected if n.endswith((".raw", ".gz"))
    )


def test_a_hidden_file_that_is_left_out_is_named(hidden_tree):
    assert listed(hidden_tree, "**/*.raw")[1] == "._a.raw"
    assert listed(hidden_tree, "sub/b.raw")[1] == ""


def test_links_in_hidden_directories_are_no_error(hidden_tree):
    (hidden_tree / ".venv").mkdir()
    (hidden_tree / ".venv" / "lib64").symlink_to(hidden_tree / "sub")
    assert listed(hidden_tree, "**/*.raw")[0] == ["a.raw", "sub/b.raw"]
    with pytest.raises(ConfigError, match="lib64 is a link to a directory"):
        listed(hidden_tree, ".venv/**/*.raw")
    with pytest.raises(ConfigError, match="lib64 is a link to a directory"):
        listed(hidden_tree, "**/lib64/*.raw", ".venv/*/*.raw")
