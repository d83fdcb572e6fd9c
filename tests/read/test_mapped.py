from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from streamplug.read import mapped
from streamplug.read.mapped import MappedFiles

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
        mapped._mapped(file.fileno(), 4)  # it is open for writing only


def test_where_mapping_is_python_s_own_it_is_the_same(path, monkeypatch):
    monkeypatch.setattr(mapped.sys, "platform", "win32")
    data = MappedFiles({"data": path}, {}).data["data"]
    assert isinstance(data.base.obj if isinstance(data.base, memoryview) else data.base, mmap.mmap)
    assert np.array_equal(data, np.frombuffer(CONTENT, np.uint8))
