from __future__ import annotations

import os
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_ranges import RangeReader, RangeShards, range_shards, shard_headers
from streamplug_ranges.spans import coalesce_ranges, locate_ranges
from streamplug_testing import isolated_plugins
from streamplug_testing.fakes import CountingStorage, FlakyStorage

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.builtin.local_storage import LocalStorage
from streamplug.builtin.mds import MDS
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DecodeError,
    StorageError,
    Transient,
    UnknownNameError,
)
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside
from streamplug.read import OpenShards, Reader

COLUMNS = {"id": "int", "text": "str", "pixels": "ndarray:uint8:4", "bag": "ndarray"}
FIXED = {"id": "int", "pixels": "ndarray:uint8:4"}


def sample(number: int, size: int = 10) -> dict[str, object]:
    return {
        "id": number,
        "text": f"sample {number} " * (number % size),
        "pixels": np.full(4, number % 256, np.uint8),
        "bag": np.arange(number % 3, dtype=np.int16),
    }


def write(folder, count=100, columns=COLUMNS, size_limit=2000, size=10, **kwargs):
    with MDSWriter(columns=columns, out=folder, size_limit=size_limit, **kwargs) as writer:
        for number in range(count):
            writer.write({name: sample(number, size)[name] for name in columns})
    return folder


class Joining(LocalStorage):
    """Can be asked for parts of several files at once."""

    supports_read_many = True


def opened(folder, storage=None, columns=None):
    """Return a reader by ranges, and what counts its requests."""
    index = Stream(local=str(folder)).open().index
    counting = CountingStorage(storage or LocalStorage(str(folder)))
    return Reader([index.starts], [RangeShards(index, RangeReader(counting, 0), columns)]), counting


def set_gap(patch, gap):
    patch.setattr(shard_headers, "MAX_GAP_BYTES", gap)
    patch.setattr(range_shards, "MAX_GAP_BYTES", gap)


def same(one, other):
    return len(one) == len(other) and all(
        list(a) == list(b)
        and all(np.array_equal(a[k], b[k]) and type(a[k]) is type(b[k]) for k in a)
        for a, b in zip(one, other)
    )


@given(
    st.integers(1, 60),
    st.integers(600, 3000),
    st.sampled_from([COLUMNS, FIXED, {"text": "str"}]),
    st.sampled_from([0, 10, range_shards.MAX_GAP_BYTES]),
    st.sampled_from([LocalStorage, Joining]),
    st.integers(1, 20),
    st.data(),
)
def test_values_are_those_of_whole_shards(
    tmp_path_factory, count, limit, columns, gap, kind, together, data
):
    folder = write(tmp_path_factory.mktemp("set"), count, columns, limit)
    wanted = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=40)), np.int64)
    stream = Stream(local=str(folder)).open()
    whole = Reader([stream.index.starts], [OpenShards(stream.index, stream.store, None)])
    with pytest.MonkeyPatch.context() as patch:
        set_gap(patch, gap)
        patch.setattr(kind, "parts_per_call", together)
        parts, _ = opened(folder, kind(str(folder)))
        assert same(parts.rows(wanted), whole.rows(wanted))
        assert same([parts.row(i) for i in wanted[:5]], [whole.row(i) for i in wanted[:5]])
        one, other = parts.batch(wanted), whole.batch(wanted)
        assert list(one) == list(other)
        assert all(type(one[name]) is type(other[name]) for name in one)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(0, 40),
)
def test_joined_ranges_hold_what_was_asked_for(asked, gap):
    wanted = np.array([(start, start + size) for start, size in asked])
    spans = coalesce_ranges(wanted, gap)
    file = np.arange(400)
    parts = [file[start:stop] for start, stop in spans]
    for (start, stop), part, place in zip(wanted, *locate_ranges(wanted, spans)):
        assert parts[part][place : place + stop - start].tolist() == list(range(start, stop))
    assert (spans[1:, 0] - spans[:-1, 1] > gap).all()
    assert sum(map(len, parts)) <= len(
        np.unique(np.concatenate([file[a:b] for a, b in wanted]))
    ) + gap * len(asked)


def test_only_what_is_asked_for_is_read(tmp_path):
    reader, counting = opened(write(tmp_path, 1000, {"text": "str"}, 1 << 24, size=4000))
    assert (tmp_path / "shard.00000.mds").stat().st_size > 5_000_000
    assert counting.bytes_read == 0
    reader.row(20)
    assert counting.counts["read_ranges"] <= 2
    assert counting.bytes_read < 200_000  # where it was likely to lie
    before = counting.bytes_read
    reader.row(150)
    assert counting.counts["read_ranges"] <= 3  # its head is known
    assert counting.bytes_read - before == 4 + len("sample 150 " * 150)


def test_near_samples_come_in_one_request(tmp_path):
    reader, counting = opened(write(tmp_path, 100, FIXED, 1 << 20))
    reader.rows(np.arange(100))
    assert counting.counts["read_ranges"] == 1
    assert counting.bytes_read == (tmp_path / "shard.00000.mds").stat().st_size


def test_pieces_that_were_fetched_ahead_are_used_and_forgotten(tmp_path):
    reader, counting = opened(write(tmp_path, 100))
    wanted = np.array([5, 99, 5, 7, 60])
    needs = reader.needs(wanted)
    pieces = [piece for need in needs for piece in need.parts]
    assert [p.number for p in pieces] == list(dict.fromkeys(p.number for p in pieces))
    assert pieces[0].rows.tolist() == [5, 7]
    for need in needs:
        reader.ensure(need)
    before = counting.counts["read_ranges"]
    assert [s["id"] for s in reader.rows(wanted)] == wanted.tolist()
    assert reader.row(7)["id"] == 7
    assert counting.counts["read_ranges"] == before
    for need in needs:
        reader.release(need)
    reader.row(7)
    assert counting.counts["read_ranges"] == before + 1


def test_a_piece_that_comes_after_the_end_of_its_loop_is_not_kept(tmp_path):
    write(tmp_path, 100)
    loop = Scope()

    class Late(LocalStorage):
        def read_ranges(self, key, ranges):
            loop.stop()
            return super().read_ranges(key, ranges)

    reader, counting = opened(tmp_path, Late(str(tmp_path)))
    wanted = np.array([5])
    with inside(loop), pytest.raises(Cancelled):
        reader.ensure(*reader.needs(wanted))
    before = counting.counts["read_ranges"]
    assert reader.row(5)["id"] == 5
    assert counting.counts["read_ranges"] > before


def test_the_memory_for_heads_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_headers, "MAX_CACHED_HEADER_BYTES", 200)
    reader, counting = opened(write(tmp_path, 100, FIXED, 300))
    shards = len(reader.starts) - 1
    assert shards > 5
    for _ in range(2):
        for shard in range(shards):
            reader.row(int(reader.starts[shard]))
    assert counting.counts["read_ranges"] == 2 * shards  # with its first sample
    assert reader._streams[0]._process_state.headers._cached_bytes <= 200


def test_columns_can_be_left_out(tmp_path):
    reader, _ = opened(write(tmp_path), columns=["id"])
    assert reader.row(3) == {"id": 3}


def test_a_copy_in_another_process_starts_anew(tmp_path):
    reader, _ = opened(write(tmp_path))
    reader.row(3)
    copy = pickle.loads(pickle.dumps(reader))
    assert not copy._streams[0]._process_state.headers._cached
    assert same([copy.row(3)], [reader.row(3)])
    memory = reader._streams[0]._process_state
    memory.lock.acquire()  # as a fork finds it while another thread reads
    memory.pid = os.getpid() + 1
    assert reader.row(3)["id"] == 3


# -- what comes with a head ----------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=9),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(0, 9),
)
def test_ranges_are_found_in_what_is_there(there, asked, gap):
    file = np.arange(120)
    parts = np.array([(start, start + size) for start, size in there], np.int64).reshape(-1, 2)
    spans = coalesce_ranges(parts, gap) if there else parts
    data = [file[start:stop] for start, stop in spans]
    wanted = np.array([(start, start + size) for start, size in asked])
    for (start, stop), part, place in zip(wanted.tolist(), *locate_ranges(wanted, spans)):
        if part >= 0:
            assert data[part][place : place + stop - start].tolist() == list(range(start, stop))
        else:
            assert not any(low <= start and stop <= high for low, high in spans.tolist())


def test_samples_of_one_size_come_with_the_head(tmp_path, monkeypatch):
    set_gap(monkeypatch, 0)
    reader, counting = opened(write(tmp_path, 1000, FIXED, 1 << 20))
    assert [row["id"] for row in reader.rows(np.array([900, 3, 500]))] == [900, 3, 500]
    assert counting.counts["read_ranges"] == 1
    assert counting.bytes_read == 4 * 1002 + 3 * 12


@given(
    st.lists(st.tuples(st.integers(-50, 5000), st.integers(-9, 5000)), min_size=12, max_size=12),
    st.lists(st.integers(0, 59), min_size=1, max_size=12),
)
def test_any_guess_gives_the_same_values(tmp_path_factory, guess, wanted):
    folder = write(tmp_path_factory.mktemp("set"), 60, COLUMNS, 3000)
    with pytest.MonkeyPatch.context() as patch:
        set_gap(patch, 7)
        patch.setattr(
            MDS,
            "estimate_ranges",
            lambda self, info, rows, columns: np.array([(a, a + n) for a, n in guess[: len(rows)]]),
        )
        reader, _ = opened(folder)
        assert [row["id"] for row in reader.rows(np.array(wanted))] == wanted
        assert reader.row(wanted[0])["id"] == wanted[0]


def test_of_a_large_sample_nothing_else_is_read(tmp_path):
    with MDSWriter(columns={"data": "bytes"}, out=tmp_path, size_limit=1 << 26) as writer:
        for number in range(9):
            writer.write({"data": bytes((1 << 20) + number)})
    reader, counting = opened(tmp_path)
    reader.row(4)
    assert counting.bytes_read < (1 << 20) + 1000


def test_a_piece_keeps_little_besides_its_samples(tmp_path):
    reader, counting = opened(write(tmp_path, 1000, FIXED, 1 << 20))
    (need,) = reader.needs(np.array([700, 20, 21]))
    (piece,) = need.parts
    reader.ensure(need)
    assert counting.counts["read_ranges"] == 1
    assert len(piece.data) < 2000 < counting.bytes_read
    assert [row["id"] for row in reader.rows(np.array([21, 700, 20]))] == [21, 700, 20]
    assert counting.counts["read_ranges"] == 1


def test_a_head_keeps_nothing_else_in_memory(tmp_path):
    reader, counting = opened(write(tmp_path, 100, FIXED, 1 << 20))
    reader.row(50)
    offsets = reader._streams[0]._process_state.headers._cached[0][0].offsets
    while offsets.base is not None:
        offsets = offsets.base
    assert offsets.nbytes == 4 * 102 < counting.bytes_read


@pytest.mark.parametrize("columns", [FIXED, COLUMNS])
def test_a_damaged_head_is_an_error_though_the_guess_was_right(tmp_path, columns):
    reader, _ = opened(write(tmp_path, columns=columns))
    path = tmp_path / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    data[5] ^= 0x40
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptShardError, match=r"shard 0 \(.*00000.mds\): .*the file is damaged"):
        reader.row(0)


@pytest.mark.parametrize("columns", [FIXED, COLUMNS])
@pytest.mark.parametrize("left", [0, 100])
def test_a_file_without_a_whole_head_is_an_error(tmp_path, columns, left):
    reader, _ = opened(write(tmp_path, 200, columns, 1 << 20))
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(
        CorruptShardError, match=r"00000.mds\): .* got \d+ bytes from 0 on .* cut short"
    ):
        reader.row(0)


@pytest.mark.parametrize("columns", [FIXED, COLUMNS])
def test_a_guess_beyond_the_end_of_a_file_names_the_sample(tmp_path, columns):
    reader, _ = opened(write(tmp_path, 200, columns, 1 << 20))
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptShardError, match=r"00000.mds\): sample 199: .* cut short"):
        reader.row(199)
    assert reader.row(198)["id"] == 198


# -- what cannot be read, or is damaged --------------------------------------------------


def test_compressed_shards_are_refused(tmp_path):
    write(tmp_path, compression="gz")
    wanted = (
        r"shard 0 \(.*shard.00000.mds.gz\) is compressed \(gz\); write .* or pass access='shard'"
    )
    with pytest.raises(ConfigError, match=wanted):
        StreamingDataset(local=str(tmp_path), access="range")


def test_formats_that_need_whole_files_are_refused(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setattr("streamplug.builtin.mds.MDS.header_range", lambda self, shard: None)
    with pytest.raises(ConfigError, match=r"shard.00000.mds.*format, 'mds', that can be read only"):
        StreamingDataset(local=str(tmp_path), access="range")


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"access": "range", "validate_hash": "sha1"}, "no digest"),
        ({"access": "range", "cache_limit": "1gb"}, "which keeps no shards"),
        ({"access": "range", "keep_zip": True}, "which keeps no shards"),
    ],
)
def test_wishes_without_meaning_are_refused(tmp_path, wishes, message):
    with pytest.raises(ConfigError, match=message):
        StreamingDataset(local=str(write(tmp_path)), **wishes)


def test_an_access_without_a_name_of_its_own_is_refused(tmp_path):
    folder = str(write(tmp_path))
    with pytest.raises(UnknownNameError, match="unknown access 'rang'"):
        StreamingDataset(local=folder, access="rang")
    with pytest.raises(ConfigError, match="RangeAccess takes no argument, got 'all'"):
        StreamingDataset(local=folder, access="range:all")
    with pytest.raises(ConfigError, match="access=True: expected a name, such as 'auto'"):
        StreamingDataset(local=folder, access=True)
    with (
        isolated_plugins(),
        pytest.raises(UnknownNameError, match="is not installed: pip install streamplug-ranges"),
    ):
        StreamingDataset(local=folder, access="range")


def shard_of(reader, number):
    return reader.locate(number)[2]


def test_a_file_that_was_cut_short_is_named_with_the_sample(tmp_path):
    reader, _ = opened(write(tmp_path))
    reader.row(0)
    path = tmp_path / shard_of(reader, 0)
    path.write_bytes(path.read_bytes()[:-1])
    last = int(reader.starts[1]) - 1
    with pytest.raises(
        CorruptShardError, match=rf"shard 0 \(.*shard.00000.mds\): sample {last}: .*cut"
    ):
        reader.rows(np.arange(last + 1))
    assert reader.row(last - 1)["id"] == last - 1


def test_a_file_of_another_size_is_found_by_its_head(tmp_path):
    reader, _ = opened(write(tmp_path))
    path = tmp_path / shard_of(reader, 0)
    data = bytearray(path.read_bytes())
    last = 4 * (int(reader.starts[1]) + 1)
    data[last : last + 4] = struct.pack("<I", len(data) + 1)
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptShardError, match=r"shard 0 \(.*00000.mds\): its samples span bytes"):
        reader.row(0)


def test_a_file_that_is_gone_is_named(tmp_path):
    reader, _ = opened(write(tmp_path))
    (tmp_path / shard_of(reader, 0)).unlink()
    with pytest.raises(StorageError, match=r"shard.00000.mds does not exist"):
        reader.row(0)


def test_a_damaged_sample_is_named(tmp_path):
    reader, _ = opened(write(tmp_path))
    shards, rows = reader._streams[0], np.array([2])
    ((head, _),) = shards._process_state.headers.get_many([(reader.open(0).reader._info, rows)])
    start, _ = head.byte_ranges(rows)[0]
    path = tmp_path / shard_of(reader, 0)
    data = bytearray(path.read_bytes())
    data[start : start + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(bytes(data))
    for read in (
        reader.row,
        lambda n: reader.rows(np.array([1, n])),
        lambda n: reader.batch(np.array([n])),
    ):
        with pytest.raises(CorruptShardError, match=r"shard.00000.mds\): sample 2: its \d+ bytes"):
            read(2)


def test_an_undecodable_value_is_named(tmp_path):
    reader, _ = opened(write(tmp_path, columns={"text": "str"}))
    path = tmp_path / shard_of(reader, 0)
    path.write_bytes(path.read_bytes().replace(b"sample 3", b"\xffample 3"))
    with pytest.raises(DecodeError, match=r"shard.00000.mds\): sample 3, column 'text'"):
        reader.rows(np.array([1, 3]))


def test_a_format_that_points_outside_the_file_does_no_harm(tmp_path, monkeypatch):
    reader, _ = opened(write(tmp_path))
    monkeypatch.setattr(
        "streamplug.builtin.mds.MDSHead.byte_ranges",
        lambda self, rows: np.array([[5, 1 << 40]] * len(rows)),
    )
    with pytest.raises(CorruptShardError, match="sample 4: it lies at bytes 5 to 1099511627776"):
        reader.row(4)


def test_failed_requests_are_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    folder = write(tmp_path)
    index = Stream(local=str(folder)).open().index
    flaky = FlakyStorage(LocalStorage(str(folder)), fail_every=2)
    for retries in (0, 20):
        reader = Reader([index.starts], [RangeShards(index, RangeReader(flaky, retries), None)])
        if retries:
            assert [s["id"] for s in reader.rows(np.arange(100))] == list(range(100))
        else:
            with pytest.raises(Transient, match=r"shard\.\d+\.mds"):
                reader.rows(np.arange(100))


def test_streams_read_by_ranges_and_whole_mix(tmp_path):
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    kept = tmp_path / "kept"
    dataset = StreamingDataset(
        streams=[
            Stream(remote=str(one), access="range"),
            Stream(remote=str(two), local=str(kept)),
        ],
        batch_size=5,
        shuffle=True,
    )
    assert sorted(s["id"] for s in dataset) == sorted([*range(100), *range(100)])
    assert not dataset._reader._streams[0]._process_state.ranges
    assert {p.name for p in Path(kept).glob("*.mds")} == {p.name for p in two.glob("*.mds")}
    assert re.search("range", str(dataset.streams[0].access))
