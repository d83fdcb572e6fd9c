from __future__ import annotations

import os

import pytest
from streamplug_fsspec import preallocation as module

SIZE = 1 << 20


def taken(path):
    return path.stat().st_blocks * 512


def test_room_is_found_before_anything_is_written(tmp_path):
    with (tmp_path / "k").open("wb") as file:
        module.preallocate(file, SIZE)
        assert os.fstat(file.fileno()).st_size == 0
        if taken(tmp_path / "k") < SIZE:
            pytest.skip("this file system, or system, finds none ahead")
        file.write(bytes(SIZE))
    assert (tmp_path / "k").read_bytes() == bytes(SIZE)
    assert taken(tmp_path / "k") < 2 * SIZE


@pytest.mark.parametrize("size", [None, 0, -1, module.MAX_PREALLOCATED_BYTES + 1])
def test_what_is_not_known_or_not_believed_takes_none(tmp_path, size):
    with (tmp_path / "k").open("wb") as file:
        module.preallocate(file, size)
        assert taken(tmp_path / "k") == 0


def test_what_cannot_be_had_is_left_to_writing():
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        module.preallocate(file, SIZE)
        file.write(b"data")
    assert os.read(read, 8) == b"data"
    os.close(read)
