from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from streamplug.read import memory_map
from streamplug.read.memory_map import MappedFiles, spanned

CONTENT = bytes(range(256)) * 100


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at /proc")
def test_a_file_stays_in_memory_for_as_long_as_somebody_looks_at_it(path):
    def there():
        return str(path) in Path("/proc/self/maps").read_text("utf-8")

    part = MappedFiles({"data": path}, {}).data["data"][1000:1010]
    path.unlink()
    assert there()
    assert bytes(part) == CONTENT[1000:1010]
    del part
    assert not there()


@pytest.mark.parametrize("size", [1, 4096, 4097, len(CONTENT), 3 << 20])
def test_all_of_a_file_is_mapped_whatever_its_size(path, size):
    path.write_bytes((CONTENT * 200)[:size])
    files = MappedFiles({"data": path}, {})
    files.populate()
    assert files.data["data"].tobytes() == path.read_bytes()
    assert not files.data["data"].flags.writeable


def test_an_empty_file_and_one_that_is_open(path, tmp_path):
    (tmp_path / "empty").touch()
    with path.open("rb") as stream:
        files = MappedFiles({"a": tmp_path / "empty", "b": tmp_path / "gone"}, {"b": stream})
    files.populate()
    assert len(files.data["a"]) == 0
    assert files.data["b"].tobytes() == CONTENT


def test_what_the_system_does_not_map_is_refused(path):
    with path.open("ab") as file, pytest.raises(PermissionError):
        memory_map._map_file(file.fileno(), 4)  # it is open for writing only


def test_buffers_lie_in_one_without_a_copy():
    buffers = [np.arange(size, dtype=np.uint8) for size in (5, 1, 200)]
    whole, starts = spanned(buffers)
    for buffer, start in zip(buffers, starts):
        [view] = whole.slices(np.array([start]), np.array([len(buffer)]))
        assert view.tobytes() == buffer.tobytes()
        assert np.shares_memory(np.frombuffer(view, np.uint8), buffer)
    assert len(whole) == max(start + len(buffer) for buffer, start in zip(buffers, starts))


def test_nobody_writes_to_them():
    whole, _ = spanned([np.zeros(4, np.uint8)])
    [view] = whole.slices(np.array([0]), np.array([4]))
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1


def test_what_lies_between_them_is_no_array():
    whole, _ = spanned([np.zeros(4, np.uint8), np.zeros(4, np.uint8)])
    assert not hasattr(whole, "min")
    for use in (memoryview, bytes):
        with pytest.raises(TypeError):
            use(whole)


def test_mappings_far_apart_are_gathered_together(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 64)
    maps = []
    for _ in range(20):
        with (tmp_path / "file").open("rb") as stream:
            maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    whole, starts = spanned([np.frombuffer(each, np.uint8) for each in maps])
    assert whole.gather(starts + np.arange(20), 1).tolist() == list(range(20))
