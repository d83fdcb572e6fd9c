from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_fsspec import blocks
from streamplug_fsspec.blocks import BLOCK_BYTES, BlockBuffer, write, write_chunks

from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside

SIZES = st.sampled_from(
    [0, 1, 5000, BLOCK_BYTES // 2, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]
)


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=8))
def test_what_is_taken_ends_where_a_block_does_if_one_does(sizes):
    pieces, taken = BlockBuffer(), bytearray()
    for number, (size, now) in enumerate(sizes):
        pieces.add(bytes([number]) * size)
        if now:
            before, waited = len(taken), pieces.size
            taken += b"".join(pieces.take())
            assert pieces.size == waited - (len(taken) - before)
            if (before + waited) // BLOCK_BYTES > before // BLOCK_BYTES:
                assert len(taken) % BLOCK_BYTES == 0
                assert pieces.size < BLOCK_BYTES
            else:
                assert not pieces.size
    taken += b"".join(pieces.take(everything=True))
    assert not pieces.size
    assert taken == b"".join(bytes([n]) * size for n, (size, _) in enumerate(sizes))


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 2, 2000])
def test_all_is_written_however_much_the_system_takes_at_once(
    tmp_path, monkeypatch, count, at_once
):
    monkeypatch.setattr(
        os, "writev", lambda to, some: os.write(to, b"".join(some)[:at_once]), raising=False
    )
    pieces = [bytes([n % 256]) * (n % 4) for n in range(count)]
    with (tmp_path / "k").open("wb", buffering=0) as file:
        write(file, pieces)
    assert (tmp_path / "k").read_bytes() == b"".join(pieces)


def test_a_little_is_written_though_more_is_slow_to_come(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(blocks, "monotonic", lambda: now)
    sizes = []

    def chunks():
        nonlocal now
        for _ in range(3):
            yield bytes(1000)
            sizes.append((tmp_path / "k").stat().st_size)
            now += 60.0

    with (tmp_path / "k").open("wb", buffering=0) as file:
        write_chunks(file, chunks())
    assert sizes == [0, 2000, 3000]
    assert (tmp_path / "k").stat().st_size == 3000


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the system does not tell")
def test_no_more_pieces_are_written_at_once_than_systems_take():
    assert os.sysconf("SC_IOV_MAX") >= blocks.MAX_BUFFERS_PER_WRITE


def test_chunks_end_if_the_consumer_stops(tmp_path):
    scope = Scope()

    def chunks():
        yield b"first"
        scope.stop()
        while True:
            yield b"more"

    with (
        (tmp_path / "file").open("wb", buffering=0) as file,
        inside(scope),
        pytest.raises(Cancelled),
    ):
        write_chunks(file, chunks())
