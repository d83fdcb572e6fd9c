"""Pieces of several shards that are asked for at once."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from streamplug_ranges import RangeReader, RangeShards
from streamplug_ranges.sample_range import SampleRange, group_ranges
from streamplug_testing.fakes import CountingStorage, FlakyStorage

from streamplug import Stream
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import CorruptShardError, NotFound, PluginError, StorageError, Transient
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside
from streamplug.read import Reader
from streamplug.transfer.observer import Observer


class Joining(LocalStorage):
    """Can be asked for parts of several files at once; some parts are lost the first times."""

    supports_read_many = True

    def __init__(self, url, lost=(), times=1, error=Transient):
        super().__init__(url)
        self.lost, self.left, self.error = lost, dict.fromkeys(lost, times), error

    def read_many(self, parts):
        read = super().read_ranges
        return [self._lost(key) or read(key, [place])[0] for key, *place in parts]

    def read_ranges(self, key, ranges):
        if error := self._lost(key):
            raise error
        return super().read_ranges(key, ranges)

    def _lost(self, key):
        if self.left.get(key):
            self.left[key] -= 1
            return self.error(f"{self.url_of(key)} is lost")
        return None


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.sleep", lambda _: None)


def opened(folder, storage=None, retries=0, observer=None):
    index = Stream(local=str(folder)).open().index
    storage = CountingStorage(storage or Joining(str(folder)))
    shards = RangeShards(index, RangeReader(storage, retries, observer), None)
    return Reader([index.starts], [shards]), storage


def one_of_each(reader):
    """Return a sample of each shard."""
    return np.asarray(reader.starts)[:-1] + 5


def check(rows, ids):
    assert [set(row["b"]) for row in rows] == [{n % 251} for n in ids.tolist()]


def test_of_eight_shards_two_questions_are_asked(many):
    reader, storage = opened(many)
    ids = one_of_each(reader)[:8]
    check(reader.rows(ids), ids)
    assert storage.counts["read_many"] == 2  # the heads, the samples
    assert storage.counts["read_ranges"] == 0
    check(reader.rows(ids + 3), ids + 3)
    assert storage.counts["read_many"] == 3


def test_a_storage_tells_how_many_samples_a_question_is_for(many):
    class InOneRequest(Joining):
        parts_per_call = 5

    reader, storage = opened(many, InOneRequest(str(many)))
    ids = one_of_each(reader)[:12]
    check(reader.rows(ids), ids)
    assert [len(need.shards) for need in reader.needs(ids)] == [5, 5, 2]
    assert storage.counts["read_many"] == 2 * 3


def test_who_cannot_join_is_asked_for_each(many):
    reader, storage = opened(many, LocalStorage(str(many)))
    ids = one_of_each(reader)
    check(reader.rows(ids), ids)
    assert storage.counts["read_many"] == 0
    assert storage.counts["read_ranges"] == 2 * len(ids)
    assert {len(need.shards) for need in reader.needs(ids)} == {1}


def test_needs_come_in_order_and_together(many):
    reader, storage = opened(many)
    ids = np.random.default_rng(1).permutation(one_of_each(reader))
    needs = reader.needs(ids)
    shards = [shard for need in needs for shard in need.shards]
    assert shards == [reader.locate(number)[1] for number in ids.tolist()]
    assert {len(need.shards) for need in needs[:-1]} == {8}
    for need in needs:
        assert reader.file_of(need) == (need.shards[0], f"shard.{need.shards[0]:05}.mds")
        reader.ensure(need)
    before = dict(storage.counts)
    check(reader.rows(ids), ids)
    assert storage.counts == before
    for need in needs:
        reader.release(need)
    assert not reader._streams[0]._process_state.ranges


@pytest.mark.parametrize("times", [1, 3])
def test_what_is_lost_is_tried_again_without_the_others(many, times):
    lost = ("shard.00002.mds", "shard.00005.mds")
    asked = []

    class Noting(Joining):
        def read_many(self, parts):
            asked.append([key for key, _, _ in parts])
            return super().read_many(parts)

    reader, storage = opened(many, Noting(str(many), lost, times), retries=3)
    ids = one_of_each(reader)[:8]
    check(reader.rows(ids), ids)
    assert list(map(len, asked)) == [8, *[2] * times, 8]  # heads, and samples
    assert set(asked[1]) == set(lost)
    assert storage.counts["read_ranges"] == 0


def test_the_attempts_are_as_many_as_was_said(many):
    lost = ("shard.00002.mds",)
    for retries in (0, 2):
        observer = Observer()
        reader, storage = opened(many, Joining(str(many), lost, 99), retries, observer)
        need = reader.needs(one_of_each(reader)[:8])[0]
        attempts = f"{retries + 1} attempt{'s'[: retries > 0]};"
        with pytest.raises(Transient, match=rf"shard.00002.mds is lost; gave up after {attempts}"):
            reader.ensure(need)
        assert storage.counts["read_many"] == retries + 1
        assert storage.counts["read_ranges"] == 0
        assert observer.counters.totals().retries == retries


def test_what_cannot_pass_is_asked_for_once(many):
    lost = Joining(str(many), ("shard.00002.mds",), 99, StorageError)
    flaky = ("shard.00004.mds",)
    lost.left[flaky[0]] = 0
    reader, storage = opened(many, lost, retries=3)
    with pytest.raises(StorageError, match=r"shard.00002.mds is lost$"):
        reader.ensure(reader.needs(one_of_each(reader)[:8])[0])
    assert storage.counts["read_many"] == 1


def test_pauses_are_those_that_the_server_asks_for(many, monkeypatch):
    slept = []
    monkeypatch.setattr("streamplug.transfer.retry.sleep", slept.append)

    def busy(text):
        error = Transient(text)
        error.retry_after = 20.0 if "00005" in text else 7.0
        return error

    lost = tuple(f"shard.{n:05}.mds" for n in range(8))
    reader, _ = opened(many, Joining(str(many), lost, 1, busy), retries=1)
    ids = one_of_each(reader)[:8]
    check(reader.rows(ids), ids)
    assert len(slept) == 1  # for all
    assert slept[0] >= 20.0


def test_an_error_names_the_one_that_has_it(many):
    (many / "shard.00003.mds").unlink()
    reader, _ = opened(many)
    ids = one_of_each(reader)[:8]
    with pytest.raises(NotFound, match=r"shard.00003.mds does not exist"):
        reader.rows(ids)
    check(reader.rows(ids[:3]), ids[:3])


def test_damage_names_the_one_that_has_it(many):
    path = many / "shard.00004.mds"
    data = path.read_bytes()
    path.write_bytes(b"\xff" * 40 + data[40:])
    reader, _ = opened(many)
    with pytest.raises(CorruptShardError, match=r"^shard 4 \(.*00004.mds\): .*file is damaged"):
        reader.ensure(reader.needs(one_of_each(reader)[:8])[0])
    path.write_bytes(data[:2000])
    for read in (reader.rows, lambda ids: reader.ensure(reader.needs(ids)[0])):
        with pytest.raises(
            CorruptShardError,
            match=r"shard 4 \(.*00004.mds\): sample 5: .*00004.mds: got .* cut short",
        ):
            read(one_of_each(reader)[:8])


def test_a_storage_that_gives_nothing_at_all_is_asked_again(many):
    storage = FlakyStorage(Joining(str(many)), fail=lambda name, _: name == "read_many")
    reader, counting = opened(many, storage, retries=1)
    ids = one_of_each(reader)[:8]
    with pytest.raises(Transient, match="read_many was made to fail; gave up after 2 attempts"):
        reader.rows(ids)
    storage.fail, storage.fail_every = None, 2
    storage.operations = 1
    check(reader.rows(ids), ids)
    assert counting.counts["read_many"] == 2 + 2 + 2


def test_a_head_that_two_threads_need_is_fetched_once(many):
    entered, gate = threading.Event(), threading.Event()

    class Gated(Joining):
        def read_many(self, parts):
            entered.set()
            assert gate.wait(30)
            return super().read_many(parts)

    reader, storage = opened(many, Gated(str(many)))
    ids, found = one_of_each(reader), {}

    def read(name, wanted):
        try:
            found[name] = reader.ensure(*reader.needs(wanted))
        except StorageError as error:
            found[name] = error

    threads = [
        threading.Thread(target=read, args=(0, ids[:6])),
        threading.Thread(target=read, args=(1, ids[3:9] + 2)),
    ]
    threads[0].start()
    assert entered.wait(30)
    threads[1].start()
    gate.set()
    for thread in threads:
        thread.join(30)
    assert found == {0: None, 1: None}
    check(reader.rows(ids[:6]), ids[:6])
    headers = reader._streams[0]._process_state.headers
    assert sorted(headers._cached) == list(range(9))
    assert not headers._in_flight
    # 6 heads and 3 more, 12 samples, of which none came twice
    sizes = sum(path.stat().st_size for path in sorted(many.glob("*.mds"))[:9])
    assert storage.bytes_read < sizes / 4


def test_whoever_fails_leaves_heads_to_others(many):
    reader, _ = opened(many, Joining(str(many), ("shard.00001.mds",)))
    need = reader.needs(one_of_each(reader)[:4])[0]
    with pytest.raises(Transient):
        reader.ensure(need)
    assert not reader._streams[0]._process_state.headers._in_flight
    reader.ensure(need)


def test_the_head_of_another_is_not_waited_for(many, monkeypatch):
    call_with_retries = threading.Event()
    over = threading.Event()

    def pause(_):
        call_with_retries.set()
        assert over.wait(30)

    monkeypatch.setattr("streamplug.transfer.retry.sleep", pause)
    reader, _ = opened(many, Joining(str(many), ("shard.00001.mds",)), retries=1)
    ids = one_of_each(reader)[:8]
    thread = threading.Thread(target=reader.ensure, args=reader.needs(ids))
    thread.start()
    assert call_with_retries.wait(30)
    check(reader.rows(ids[4:6]), ids[4:6])
    loop = Scope()
    with inside(loop):
        loop.stop()
        with pytest.raises(Cancelled):
            reader.ensure(*reader.needs(ids[1:2]))
    over.set()
    thread.join(30)
    assert not reader._streams[0]._process_state.headers._in_flight


def test_not_more_is_asked_at_once_for_being_together(many):
    lock, now, most = threading.Lock(), [0], [0]

    class Watching(Joining):
        def read_many(self, parts):
            with lock:
                now[0] += len(parts)
                most[0] = max(most[0], now[0])
            try:
                time.sleep(0.01)
                return super().read_many(parts)
            finally:
                with lock:
                    now[0] -= len(parts)

    reader, _ = opened(many, Watching(str(many)))
    assert len(reader.starts) > 33
    ids = np.sort(np.concatenate([one_of_each(reader) + n for n in (0, 9)]))
    check(reader.rows(ids), ids)
    assert 8 < most[0] <= 64


def test_each_file_is_told_of(many):
    observer = Observer()
    reader, _ = opened(many, observer=observer)
    reader.rows(one_of_each(reader)[:8])
    stats = observer.counters.totals()
    assert stats.range_requests == 16
    assert stats.range_bytes > 0


def piece(number, rows=1, weight=1):
    return SampleRange(number, number, np.arange(rows), weight)


def test_what_is_large_stays_alone():
    rows = [piece(0), piece(1, 7), piece(2, 9), piece(3), piece(4)]
    assert group_ranges(rows, 8) == [rows[:2], [rows[2]], rows[3:]]
    large = [piece(0, 1, 3 << 20), piece(1, 1, 1 << 20), piece(2, 1, 1)]
    assert group_ranges(large, 8) == [large[:2], [large[2]]]
    assert group_ranges([], 8) == []


def test_streams_are_not_mixed(many):
    index = Stream(local=str(many)).open().index
    storages = [CountingStorage(Joining(str(many))) for _ in range(2)]
    shards = [RangeShards(index, RangeReader(storage, 0), None) for storage in storages]
    reader, one, other = Reader([index.starts] * 2, shards), 0, len(index)
    ids = [id_ for start in index.starts[:10] for id_ in (start + 5, index.size + start + 5)]
    needs = reader.needs(np.array(ids))
    assert [need.shards for need in needs] == [
        list(range(one, one + 8)), list(range(other, other + 8)),
        [one + 8, one + 9], [other + 8, other + 9],
    ]  # fmt: skip
    check(reader.rows(np.array(ids)), np.array(ids) % index.size)
    for storage in storages:
        assert storage.counts["read_many"] == 4  # heads and samples of two groups


def test_a_group_is_freed_when_all_of_it_is_decoded(many):
    reader, _ = opened(many)
    values = reader._gather(one_of_each(reader)[:12])
    held = reader._streams[0]._process_state.ranges
    for count, _ in enumerate(values):
        first = 0 if count < 8 else 8
        assert set(range(first, 8)) <= held.keys() or first == 8
        assert first == 0 or held.keys() == set(range(8, 12))
    assert not held


class Miscounting(Joining):
    """Returns a part less than requested, or one more."""

    def __init__(self, url, change):
        super().__init__(url)
        self.change = change

    def read_many(self, parts):
        return self.change(super().read_many(parts))

    def read_ranges(self, key, ranges):
        return self.change(super().read_ranges(key, ranges))


@pytest.mark.parametrize("change", [lambda parts: parts[:-1], lambda parts: [*parts, b"x"]])
@pytest.mark.parametrize("count", [1, 8])
def test_a_storage_that_returns_another_number_of_parts_is_named(many, change, count):
    reader, _ = opened(many, Miscounting(str(many), change))
    with pytest.raises(
        PluginError, match=r"shard\.00000\.mds: the plugin of this storage returned"
    ):
        reader.rows(one_of_each(reader)[:count])
