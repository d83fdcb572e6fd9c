"""Files of a tree become shards, and what says so is not trusted."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_files import FileSelection, ShardManifest
from streamplug_files import multifile_shards as bundling
from streamplug_files.multifile_storage import MultifileStorage, _ShardFiles

from streamplug.errors import CorruptShardError, InvalidIndexError, ObjectReplaced
from streamplug.plugin.location import open_storage
from streamplug.types import ObjectInfo

NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), max_size=6)


@given(NAMES, st.booleans())
def test_a_bundle_is_read_as_it_was_packed(names, labelled):
    sizes = list(range(len(names)))
    labels = [3 * size for size in sizes] if labelled else None
    bundle = ShardManifest.of(names, sizes, labels)
    again = ShardManifest.unpack(bundle.pack(), len(names), sum(sizes))
    assert [again.name(number) for number in range(len(again))] == names
    assert again.sizes.tolist() == sizes
    assert (None if again.labels is None else again.labels.tolist()) == labels


@given(st.data(), st.booleans())
def test_damage_to_a_bundle_is_noticed_or_does_no_harm(data, labelled):
    packed = bytearray(ShardManifest.of(["a/é", "b"], [5, 7], [0, 1] if labelled else None).pack())
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), min_size=1, max_size=3)):
        packed[at] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    with suppress(CorruptShardError):
        bundle = ShardManifest.unpack(bytes(packed), 2, 12)
        assert (bundle.sizes >= 0).all()
        assert bundle.ends[-1] == 12
        assert "".join(bundle.name(number) for number in range(2))


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../b", "a/..", "a\0"])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(CorruptShardError, match="leads elsewhere"):
        ShardManifest.of([name], [1], None).safe_name(0)


def test_names_that_are_no_text_are_refused():
    with pytest.raises(InvalidIndexError, match="must be UTF-8"):
        ShardManifest.of(["a\udcff"], [1], None)


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 5), st.integers(1, 20))
def test_shards_are_files_in_a_row_within_bounds(sizes, most_files, most_bytes):
    files = [ObjectInfo(f"{number:02d}", size) for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundling, "MAX_FILES_PER_SHARD", most_files)
        patch.setattr(bundling, "MAX_SHARD_BYTES", most_bytes)
        numbers = range(len(files))
        found = list(bundling.group_files(files, FileSelection(numbers, {}, labels=numbers)))
    assert [each.name(n) for each in found for n in range(len(each))] == [f.key for f in files]
    assert [label for each in found for label in each.labels.tolist()] == list(numbers)
    for each in found:
        assert 1 <= len(each) <= most_files
        assert len(each) == 1 or int(np.sum(each.sizes)) <= most_bytes
    for each, other in pairwise(found):
        full = len(each) == most_files
        assert full or int(each.sizes.sum()) + int(other.sizes[0]) > most_bytes


def test_a_shard_without_files_can_be_read_like_any_other(tmp_path, monkeypatch):
    storage = MultifileStorage(open_storage(str(tmp_path)), None, None)
    empty = _ShardFiles("", ShardManifest.of([], [], None))
    monkeypatch.setattr(storage, "_files", lambda key: empty)
    assert storage.serves_ranges("_bundles/00000")
    assert storage.read("_bundles/00000") == b""
    storage.download("_bundles/00000", tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == b""


def multifile(root, monkeypatch, **contents):
    """Return a storage of one shard of these files."""
    for name, data in contents.items():
        (root / name).write_bytes(data)
    storage = MultifileStorage(open_storage(str(root)), None, None)
    sizes = [len(data) for data in contents.values()]
    files = _ShardFiles("", ShardManifest.of(list(contents), sizes, None))
    monkeypatch.setattr(storage, "_files", lambda key: files)
    return storage


def test_parts_of_the_only_file_of_a_shard_are_of_one_version(tmp_path, monkeypatch):
    storage = multifile(tmp_path, monkeypatch, a=b"0123456789")
    parts, version = storage.read_version("_bundles/00000", [(0, 4), (4, 10)])
    assert parts == [b"0123", b"456789"]
    assert storage.read_version("_bundles/00000", [(5, 6)], version) == ([b"5"], version)
    (tmp_path / "a").write_bytes(b"0123456789+")
    with pytest.raises(ObjectReplaced, match="/a: it was replaced"):
        storage.read_version("_bundles/00000", [(5, 6)], version)
    with pytest.raises(CorruptShardError, match="/a: it does not have the 10 bytes any more"):
        storage.read_version("_bundles/00000", [(4, 10)])


def test_several_files_of_a_shard_have_no_version_in_common(tmp_path, monkeypatch):
    storage = multifile(tmp_path, monkeypatch, a=b"01", b=b"23")
    assert storage.read_version("_bundles/00000", [(0, 4)]) == ([], "")
    storage.download("_bundles/00000", tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == b"0123"
