from __future__ import annotations

import asyncio
import errno
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_fsspec import event_loop as loops

from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside

WAIT = 60


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT)
    loop.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tmp_path_factory.mktemp("stored") / "target"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 9000, loops.BLOCK_BYTES, loops.MAX_UNWRITTEN_BYTES + 1]),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_what_is_written_is_stored_in_order(loop, target, pieces):
    data = [bytes([n + 1]) * size for n, (size, _) in enumerate(pieces)]

    async def write(file):
        for piece, (_, pause) in zip(data, pieces, strict=True):
            assert file.write(piece) == len(piece)
            if pause:
                await asyncio.sleep(0)
        return len(data)

    assert loops.store_on_loop(loop, write, target) == len(data)
    assert target.read_bytes() == b"".join(data)


def test_a_few_bytes_are_stored_though_more_are_to_come(loop, tmp_path):
    async def write(file):
        file.write(b"few")
        while not (tmp_path / "k").exists() or (tmp_path / "k").stat().st_size != 3:
            await asyncio.sleep(0.01)

    loops.store_on_loop(loop, lambda file: asyncio.wait_for(write(file), WAIT), tmp_path / "k")


def test_room_is_found_for_what_is_expected(loop, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(loops, "preallocate", lambda _, size: found.append(size))

    async def write(file):
        file.expected = 4
        file.write(b"data")

    loops.store_on_loop(loop, write, tmp_path / "k")
    assert found == [4]


def test_what_fails_at_once_leaves_no_file(loop, tmp_path):
    async def fail(_):
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        loops.store_on_loop(loop, fail, tmp_path / "k")
    assert not list(tmp_path.iterdir())


def test_what_fails_later_is_raised(loop, tmp_path):
    async def fail(file):
        file.write(b"some")
        raise TimeoutError("too slow")

    with pytest.raises(TimeoutError, match="too slow"):
        loops.store_on_loop(loop, fail, tmp_path / "k")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its device is always full")
@pytest.mark.parametrize("size", [3, loops.MAX_UNWRITTEN_BYTES])
def test_a_full_disk_ends_the_coroutine_wherever_it_is(loop, tmp_path, size):
    (tmp_path / "k").symlink_to("/dev/full")
    ended = threading.Event()

    async def write(file):
        try:
            while True:
                file.write(bytes(size))
                await asyncio.sleep(0)
        finally:
            ended.set()

    with pytest.raises(OSError, match="space") as error:
        loops.store_on_loop(loop, write, tmp_path / "k")
    assert error.value.errno == errno.ENOSPC
    assert ended.wait(WAIT)


@pytest.mark.parametrize("written", [b"", b"some"])
def test_a_scope_that_is_stopped_ends_both_sides(loop, tmp_path, written):
    scope, begun, ended = Scope(), threading.Event(), threading.Event()

    async def write(file):
        file.write(written)
        begun.set()
        try:
            await asyncio.sleep(6000)
        finally:
            ended.set()

    threading.Thread(target=lambda: begun.wait(WAIT) and scope.stop()).start()
    with inside(scope), pytest.raises(Cancelled):
        loops.store_on_loop(loop, write, tmp_path / "k")
    assert ended.is_set()


def test_nothing_begins_in_a_scope_that_was_stopped(loop):
    scope, begun = Scope(), []

    async def begin():
        begun.append(True)

    scope.stop()
    with inside(scope), pytest.raises(Cancelled):
        loops.run_on_loop(loop, begin)
    assert not begun


def test_a_coroutine_nobody_waits_for_ends(loop):
    begun, ended = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.sleep(6000)
        finally:
            ended.set()

    with suppress(KeyboardInterrupt), loops._running(loop, work):
        assert begun.wait(WAIT)
        raise KeyboardInterrupt
    assert ended.wait(WAIT)


def test_what_ends_by_itself_was_not_ended_by_the_consumer(loop, tmp_path):
    async def end(*_):
        raise asyncio.CancelledError

    for ends in (
        lambda: loops.run_on_loop(loop, end),
        lambda: loops.store_on_loop(loop, end, tmp_path / "k"),
    ):
        with pytest.raises(CancelledError):
            ends()
