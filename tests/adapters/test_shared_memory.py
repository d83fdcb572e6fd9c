from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

from streamplug.adapters.shared_memory import SharedArrays, unpack_arrays
from tests.start_methods import EVERY_METHOD

pytestmark = pytest.mark.skipif(not SharedArrays.possible(), reason="no files without a name here")

ARRAYS = {
    "ids": np.arange(7),
    "pixels": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "empty": np.zeros((0, 5), np.float32),
    3: np.array(2.5),
    "steps": np.arange(20, dtype=np.int16)[::2],
}


def same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_arrays_come_out_as_they_went_in():
    arena = SharedArrays(2)
    same(unpack_arrays(arena.pack(ARRAYS)), ARRAYS)
    same(unpack_arrays(pickle.loads(pickle.dumps(arena.pack(ARRAYS)))), ARRAYS)


def test_arrays_begin_where_any_dtype_may():
    arena = SharedArrays(1)
    found = unpack_arrays(arena.pack(ARRAYS))
    assert all(array.ctypes.data % 64 == 0 for array in found.values())


def test_a_slot_is_free_when_its_last_array_is_gone():
    arena = SharedArrays(2)
    first, second = unpack_arrays(arena.pack(ARRAYS)), unpack_arrays(arena.pack(ARRAYS))
    assert arena.pack(ARRAYS) is None
    kept = first["pixels"][1]
    del first
    assert arena.pack(ARRAYS) is None
    del kept
    third = unpack_arrays(arena.pack({"x": np.ones(3)}))
    same(second, ARRAYS)
    same(third, {"x": np.ones(3)})


def test_many_slots_may_be_asked_for():
    arena = SharedArrays(100_000)
    for arrays in [unpack_arrays(arena.pack(ARRAYS)) for _ in range(3)]:
        same(arrays, ARRAYS)


def test_a_slot_that_cannot_be_allocated_can_be_used_later():
    arena, small, large = SharedArrays(2), {"x": np.ones(3000)}, {"x": np.ones(100_000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            arena.pack(large)
        first = unpack_arrays(arena.pack(small))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    same(unpack_arrays(arena.pack(large)), large)
    same(first, small)


def test_a_batch_that_is_never_looked_at_frees_its_slot():
    arena = SharedArrays(1)
    for _ in range(3):
        unpack_arrays(arena.pack(ARRAYS))


def test_larger_arrays_move_to_larger_slots_and_spare_what_is_in_use():
    arena, kept = SharedArrays(3), []
    for turn in range(40):
        array = np.full(1000 * (turn + 1), turn, np.int32)
        kept.append((turn, unpack_arrays(arena.pack({"x": array}))))
        for value, found in kept:
            assert (found["x"] == value).all()
            assert len(found["x"]) == 1000 * (value + 1)
        kept = kept[-2:]


def test_arrays_outlive_their_arena():
    arena = SharedArrays(1)
    before = descriptors()
    found = unpack_arrays(arena.pack(ARRAYS))
    del arena
    same(found, ARRAYS)
    del found
    gc.collect()
    assert descriptors() <= before - 2  # of the file, and of its mappings


def test_a_batch_of_an_arena_that_is_gone_is_refused():
    packed = SharedArrays(1).pack(ARRAYS)
    with pytest.raises(KeyError):
        unpack_arrays(packed)


def fill(arena, pipe):
    while (number := pipe.recv()) is not None:
        pipe.send(arena.pack({"x": np.full(50_000, number)}))


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_another_process_fills_it(method):
    context = multiprocessing.get_context(method)
    arena, (ours, theirs) = SharedArrays(3), context.Pipe()
    process = context.Process(target=fill, args=(arena, theirs), daemon=True)
    process.start()
    kept = []
    for number in range(6):
        ours.send(number)
        kept.append(unpack_arrays(ours.recv()))
        assert (kept[-1]["x"] == number).all()
        del kept[:-2]
    ours.send(6)
    kept.append(unpack_arrays(ours.recv()))
    ours.send(7)
    assert ours.recv() is None  # all are in use
    process.kill()
    process.join()
    assert [int(batch["x"][-1]) for batch in kept] == [4, 5, 6]


def test_a_fork_that_drops_its_copy_frees_nothing():
    arena = SharedArrays(1)
    found = [unpack_arrays(arena.pack(ARRAYS))]
    child = os.fork()
    if child == 0:
        found.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert arena.pack(ARRAYS) is None
    same(found[0], ARRAYS)
