from __future__ import annotations

from contextlib import nullcontext
from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_ranges.held_ranges import HeldRanges
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.spans import coalesce_ranges, total_bytes
from streamplug_ranges.versioned_file import VersionedFile, max_gap
from streamplug_testing.fakes import CountingStorage

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import StorageError
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside
from streamplug.transfer import ThreadPool
from streamplug.types import FileInfo

DATA = bytes(np.arange(256, dtype=np.uint8)) * 400


def ranges(*bounds):
    return np.array(bounds, np.int64).reshape(-1, 2)


def from_data(wanted):
    """Fetch ranges of `DATA`."""
    return [
        [np.frombuffer(DATA[start:stop], np.uint8) for start, stop in of_part.tolist()]
        for of_part in wanted
    ]


def held(found, start, stop):
    data = found.find(start, stop)
    return None if data is None else data.tobytes()


def test_parts_are_held_until_all_users_have_released_them():
    found, fetched = HeldRanges(), []

    def fetch(wanted):
        fetched.append(len(wanted))
        return from_data(wanted)

    both = found.hold({0: ranges((10, 20)), 1: ranges((30, 50), (70, 80))}, fetch)
    one = found.hold({1: ranges((30, 50), (70, 80)), 2: ranges((90, 99))}, fetch)
    assert fetched == [2, 1]
    assert held(found, 12, 15) == DATA[12:15]
    found.release(both)
    assert (found.has(0), found.has(1), found.has(2)) == (False, True, True)
    assert held(found, 10, 20) is None
    assert held(found, 70, 80) == DATA[70:80]
    assert held(found, 70, 81) is None
    found.release(one)
    assert not found.has(1)


def test_others_wait_for_the_one_that_fetches_and_go_on_if_it_fails():
    found, began, gate = HeldRanges(), Event(), Event()

    def fail(_):
        began.set()
        assert gate.wait(60)
        raise StorageError("no")

    pool = ThreadPool(2)
    first = pool.submit(lambda: found.hold({0: ranges((0, 9))}, fail))
    assert began.wait(60)
    second = pool.submit(lambda: found.hold({0: ranges((0, 9))}, fail))
    assert not second.wait(0.05)
    gate.set()
    first.wait()
    second.wait()
    assert isinstance(first.error, StorageError)
    if second.error is None:  # it had begun to wait
        assert held(found, 0, 9) is None
    pool.stop()
    assert not found.has(0)
    found.release(found.hold({0: ranges((0, 9))}, from_data))
    assert not found.has(0)


def test_a_cancelled_user_holds_nothing():
    found, scope = HeldRanges(), Scope()
    mine = found.hold({0: ranges((0, 9))}, from_data)
    mine[0].ended.clear()  # as if it were being fetched
    scope.stop()
    with inside(scope), pytest.raises(Cancelled):
        found.hold({0: ranges((0, 9)), 1: ranges((9, 20))}, from_data)
    assert not found.has(1)
    found.release(mine)
    assert not found.has(0)


@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 1 << 18)), min_size=1, max_size=9)
)
def test_gaps_add_at_most_a_tenth_of_the_bytes(found):
    wanted = coalesce_ranges(ranges(*((start, start + size) for start, size in found)), 0)
    assert total_bytes(coalesce_ranges(wanted, max_gap(wanted))) <= 1.1 * total_bytes(wanted)


def test_a_file_reads_what_is_held_and_fetches_the_rest_once(tmp_path):
    (tmp_path / "x").write_bytes(DATA)
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    file = VersionedFile(RangeReader(storage, 0), FileInfo("x", len(DATA), {}), 0, nullcontext)
    parts = file.hold({3: ranges((0, 1000), (50_000, 51_000)), 4: ranges((1050, 2000))})
    assert storage.counts["read_version"] == 1
    assert (
        storage.bytes_read == 3000
    )  # one request for the first two, with the 50 bytes between them
    got = file.read(ranges((10, 20), (1000, 1100), (50_500, 51_000)))
    assert [part.tobytes() for part in got] == [DATA[10:20], DATA[1000:1100], DATA[50_500:51_000]]
    assert storage.bytes_read == 3100
    assert file.holds(3)
    file.release(parts)
    assert not file.holds(3)
