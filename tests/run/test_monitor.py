"""What a data set tells of itself: counts, events, and a line on the terminal."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing import FlakyStorage, isolated_plugins
from streamplug_testing.callback import EVENTS, CallbackTests

from streamplug import Callback, MDSWriter, World, register_callback
from streamplug.builtin.local_storage import LocalStorage
from streamplug.cache.quota import CacheQuota
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StorageError, Transient, UnknownNameError
from streamplug.interfaces import (
    CacheHit,
    EpochEnded,
    EpochStarted,
    RangesRead,
    RequestRetried,
    ShardDownloaded,
    ShardEvicted,
    ShardRepaired,
    Stalled,
    Stats,
)
from streamplug.plugin.registry import unregister
from streamplug.plugin_kit.cancellation import Cancelled
from streamplug.source import StreamLocation
from streamplug.stream import Stream
from streamplug.transfer import retry
from streamplug.transfer.observer import Observer

SIZE, SHARDS = 100, 10
EACH = SIZE // SHARDS


class Noted(Callback):
    """Keeps what it is told."""

    def __init__(self):
        self.events, self.places, self.about = [], [], None

    def __getstate__(self):
        return {"events": [], "places": [], "about": None}

    def on_attach(self, stats, urls, world):
        self.about = (stats, urls, world)

    def on_event(self, event, world):
        self.events.append(event)
        self.places.append(world)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


class TestNoted(CallbackTests):
    cls = Noted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    # A shard is its head, with an offset for each sample, and the samples.
    with MDSWriter(out=str(out), columns={"n": "int", "b": "bytes"}, size_limit=11_000) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "b": bytes([n]) * 1000})
    index = json.loads((out / "index.json").read_text())
    assert len(index["shards"]) == SHARDS
    return out


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
def make(folder, tmp_path, noted):
    def make(**wishes):
        wishes = {"batch_size": 5, "callbacks": [noted], **wishes}
        return StreamingDataset(
            **{"remote": str(folder), "local": str(tmp_path / "near"), **wishes}
        )

    return make


def stored(folder):
    return sum(path.stat().st_size for path in folder.glob("*.mds"))


# -- counts ---------------------------------------------------------------------


def test_an_epoch_is_counted_and_the_next_one_finds_the_cache(make, folder):
    dataset = make()
    assert dataset.stats() == Stats()
    assert len(list(dataset)) == SIZE
    first = dataset.stats()
    assert (first.samples, first.batches) == (SIZE, SIZE // 5)
    assert (first.downloads, first.downloaded_bytes) == (SHARDS, stored(folder))
    assert (first.cache_hits, first.retries, first.evictions, first.repairs) == (0, 0, 0, 0)
    assert first.download_seconds > 0

    again = make()
    assert sum(len(batch["n"]) for batch in again.batches()) == SIZE
    second = again.stats()
    assert (second.samples, second.downloads, second.cache_hits) == (SIZE, 0, SHARDS)


@pytest.mark.parametrize("way", [iter, StreamingDataset.batches], ids=["samples", "batches"])
def test_what_was_handed_out_is_counted_at_once_and_when_left(make, way):
    dataset = make(batch_size=4)
    iterator = way(dataset)
    for _ in range(2 if way is not iter else 8):
        next(iterator)
    assert (dataset.stats().samples, dataset.stats().batches) == (8, 2)
    iterator.close()
    assert (dataset.stats().samples, dataset.stats().batches) == (8, 2)


def test_callbacks_get_what_the_data_set_returns(make, noted):
    dataset = make()
    stats, _, _ = noted.about
    for count, _ in enumerate(dataset.batches(), 1):
        assert stats().batches == dataset.stats().batches == count  # others may be downloading
    assert pickle.loads(pickle.dumps(stats))() == Stats()
    last, dead = dataset.stats(), weakref.ref(dataset)
    del dataset
    gc.collect()
    assert (dead(), stats()) == (None, last)


def test_samples_that_fill_a_batch_count_where_a_rank_has_them(make):
    dataset = make(batch_size=8, world=World(ranks_per_node=3, rank=1))
    list(dataset)
    assert (dataset.stats().samples, dataset.stats().batches) == (40, 5)


def test_loops_side_by_side_are_each_counted(make):
    dataset = make(batch_size=None)
    assert len(list(zip(iter(dataset), make(batch_size=None)))) == SIZE
    one, two = iter(dataset), make()
    next(one)
    assert dataset.stats().samples == SIZE + 1
    assert two.stats().samples == 0


def test_a_fork_counts_with_its_parent_and_ends_nothing_of_it(make, noted):
    dataset = make(batch_size=4)
    iterator = dataset.batches()
    next(iterator)
    child = os.fork()
    if not child:
        del iterator
        noted.events.clear()
        iterator = None
        status = 0 if len(list(dataset)) == SIZE else 1
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert dataset.stats().samples == SIZE + 4
    iterator.close()
    assert dataset.stats().samples == SIZE + 4


FORK = """
import os, sys
from streamplug.dataset import StreamingDataset
def main():
    global iterator  # which is closed when most modules are gone
    iterator = StreamingDataset(local=sys.argv[1], batch_size=4).batches()
    next(iterator)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
main()
"""


def test_a_fork_that_ends_in_a_loop_says_nothing(folder):
    command = [sys.executable, "-c", FORK, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_copy_counts_for_itself(make, noted):
    dataset = make()
    list(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.stats() == Stats()
    list(copy)
    assert dataset.stats().samples == copy.stats().samples == SIZE
    assert copy.stats().cache_hits == SHARDS


def test_threads_lose_no_count(make):
    counters = make().session.monitor.observer.counters
    barrier = threading.Barrier(4)

    def count():
        barrier.wait(60)
        for _ in range(2000):
            counters.add(samples=1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counters.totals().samples == 8000


def test_in_place_there_is_nothing_to_download_or_to_find(folder):
    dataset = StreamingDataset(local=str(folder), batch_size=5)
    list(dataset)
    stats = dataset.stats()
    decoding = stats.decode_wait_seconds
    assert stats == Stats(samples=SIZE, batches=SIZE // 5, decode_wait_seconds=decoding)


def test_ranges_are_counted(make, noted):
    dataset = make(access="range", local=None)
    assert dataset[[3, 70]][1]["n"] == 70
    stats = dataset.stats()
    assert (stats.downloads, stats.cache_hits, stats.samples) == (0, 0, 0)
    assert stats.range_requests == 2  # small shards come whole, with their heads
    assert 2000 < stats.range_bytes < 25_000
    ranged = noted.of(RangesRead)
    assert sum(event.bytes for event in ranged) == stats.range_bytes
    assert sum(event.requests for event in ranged) == stats.range_requests
    assert all(event.url.endswith(".mds") for event in ranged)


def test_evictions_are_counted(make, noted, tmp_path):
    dataset = make(cache_limit=50_000)
    list(dataset)
    stats = dataset.stats()
    evicted = noted.of(ShardEvicted)
    assert stats.evictions == len(evicted) >= SHARDS - 5
    assert stats.evicted_bytes == sum(event.bytes for event in evicted)
    left = {path.name for path in (tmp_path / "near").glob("*.mds")}
    assert len(left) + len({event.path for event in evicted} - left) >= SHARDS


def test_a_damaged_shard_that_comes_anew_is_counted(make, noted, tmp_path):
    list(make())
    shard = tmp_path / "near" / "shard.00003.mds"
    content = shard.read_bytes()
    shard.write_bytes(b"\xff" * len(content))
    noted.events.clear()
    dataset = make()
    assert [sample["n"] for sample in dataset] == list(range(SIZE))
    assert noted.of(ShardRepaired) == [ShardRepaired(str(shard))]
    assert (dataset.stats().repairs, dataset.stats().downloads) == (1, 1)
    assert dataset.stats().cache_hits == SHARDS
    assert shard.read_bytes() == content


@pytest.fixture
def flaky(monkeypatch, folder):
    """Have each operation of the storage fail the first time that it is tried on a file."""
    monkeypatch.setattr(retry, "backoff_seconds", lambda _: 0.0)
    original = Stream.storage.fget
    tried = set()

    def first(operation, key):
        seen = (operation, key) in tried
        tried.add((operation, key))
        return not seen

    def storage(self):
        return FlakyStorage(original(self), fail=first)

    monkeypatch.setattr(Stream, "storage", property(storage))
    monkeypatch.setattr(StreamLocation, "in_place", False)


def test_retries_are_counted_told_and_logged(make, noted, flaky, caplog):
    with caplog.at_level(logging.WARNING, "streamplug.transfer"):
        dataset = make()
        list(dataset)
    retried = noted.of(RequestRetried)
    assert dataset.stats().retries == len(retried) == len(caplog.records) > SHARDS
    fetched = noted.of(ShardDownloaded)
    assert [event.attempts for event in fetched] == [2] * SHARDS
    of_shards = {event.url for event in retried if event.url.endswith(".mds")}
    assert of_shards == {event.url for event in fetched}
    for event in retried:
        assert "was made to fail" in event.cause
        assert event.pause == 0
        assert event.cause in caplog.text


def test_a_download_that_fails_for_good_is_not_counted(make, noted, monkeypatch):
    dataset = make(download_retry=0, download_patience=0)
    monkeypatch.setattr(
        "streamplug.builtin.local_storage.LocalStorage.download",
        lambda self, key, path: (_ for _ in ()).throw(Transient(f"{self.url_of(key)}: no")),
    )
    with pytest.raises(StorageError):
        list(dataset)
    assert dataset.stats().downloads == 0
    assert noted.events[-1] == EpochEnded(0, complete=False)


def test_waits_are_counted(make, noted, monkeypatch):
    begun = threading.Event()
    waiting, download = Observer.waiting, LocalStorage.download

    def noting(self, *about):
        begun.set()
        return waiting(self, *about)

    def held(self, key, path):
        begun.wait(60)
        download(self, key, path)

    monkeypatch.setattr(Observer, "waiting", noting)
    monkeypatch.setattr(LocalStorage, "download", held)
    dataset = make()
    list(dataset)
    waited = noted.of(Stalled)
    assert waited[0].shard == 0
    assert waited[0].file == "shard.00000.mds"
    stats, seconds = dataset.stats(), sum(e.seconds for e in waited)
    assert stats.storage_wait_seconds == pytest.approx(seconds, abs=1e-6)
    assert stats.decode_wait_seconds > 0
    assert stats.transform_wait_seconds == stats.handover_wait_seconds == 0
    assert stats.wait_seconds == stats.storage_wait_seconds + stats.decode_wait_seconds


def test_stats_are_plain_values(make):
    dataset = make()
    list(dataset)
    plain = json.loads(json.dumps(dataset.stats().as_dict()))
    assert plain["samples"] == SIZE
    assert Stats(**plain) == dataset.stats()
    assert repr(dataset.stats()).startswith("Stats(samples=100, batches=20, downloads=10, ")


# -- events -----------------------------------------------------------------------


def test_events_come_with_what_they_are_about_and_where(make, noted, folder):
    world = World(nodes=2, ranks_per_node=2, rank=2)
    dataset = make(world=world, replication=2)
    stats, urls, world = noted.about
    assert (urls, world) == ([str(folder)], world)
    list(dataset)
    assert noted.events[0] == EpochStarted(0, 0)
    assert noted.events[-1] == EpochEnded(0, complete=True)
    assert set(noted.places) == {world}  # the rank itself, not its group
    fetched = noted.of(ShardDownloaded)
    assert fetched[0].url == str(folder / Path(fetched[0].url).name)
    assert all(event.attempts == 1 and event.seconds > 0 for event in fetched)
    assert stats() == dataset.stats()
    list(dataset)
    assert len(noted.of(CacheHit)) + len(fetched) >= len(fetched)


def test_a_loop_that_is_left_or_resumed_says_so(make, noted):
    dataset = make(batch_size=10)
    for _ in dataset.batches():
        break
    assert noted.events[-1] == EpochEnded(0, complete=False)
    state = dataset.state_dict()
    dataset.load_state_dict(state)
    for _ in dataset.batches():
        pass
    assert EpochStarted(0, 1) in noted.events
    assert noted.events[-1] == EpochEnded(0, complete=True)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_plain_values(event):
    plain = json.loads(json.dumps(event.as_dict()))
    assert plain.pop("event") == type(event).__name__
    assert type(event)(**plain) == event


def test_credentials_are_in_no_event(tmp_path, noted, monkeypatch):
    secret = "hunter2"
    pytest.importorskip("aiohttp")
    pytest.importorskip("streamplug_fsspec")
    monkeypatch.setattr(retry, "backoff_seconds", lambda _: 0.0)
    with pytest.raises(StorageError):
        StreamingDataset(
            remote=f"http://me:{secret}@127.0.0.1:9/set?token={secret}",
            local=str(tmp_path),
            callbacks=[noted],
            download_retry=1,
        )
    assert noted.of(RequestRetried)
    assert secret not in str([event.as_dict() for event in noted.events]) + str(noted.about)
    assert noted.of(RequestRetried)[0].url == "http://127.0.0.1:9/set"


class Failing(Callback):
    def __init__(self, error=ValueError):
        self.error, self.calls = error, 0

    def on_event(self, event, world):
        self.calls += 1
        raise self.error("it does not like this")


def test_a_callback_that_fails_is_logged_once_and_stops_nothing(make, noted, caplog):
    failing = Failing()
    dataset = make(callbacks=[failing, noted])
    with caplog.at_level(logging.ERROR, "streamplug.callbacks"):
        assert len(list(dataset)) == SIZE
    assert failing.calls == len(noted.events) > SHARDS
    [record] = caplog.records
    assert "reading goes on" in record.getMessage()
    assert "it does not like this" in caplog.text
    assert dataset.stats().downloads == SHARDS


@pytest.mark.parametrize("compression", [None, "gz"])
def test_downloads_count_only_when_they_are_in_the_cache(tmp_path, monkeypatch, compression):
    far, near = tmp_path / "far", tmp_path / "near"
    with MDSWriter(
        out=far, columns={"n": "int"}, compression=compression, max_samples_per_shard=10
    ) as out:
        out.write_batch({"n": np.arange(SIZE)})
    commit = CacheQuota._commit

    def cancelled(self, part, path):  # as where the loop is left before
        if path.name != "shard.00000.mds":
            raise Cancelled
        commit(self, part, path)

    monkeypatch.setattr(CacheQuota, "_commit", cancelled)
    dataset = StreamingDataset(remote=str(far), local=str(near), batch_size=10)
    batches = dataset.batches()
    next(batches)
    batches.close()
    assert [path.name for path in near.glob("*.mds*")] == ["shard.00000.mds"]
    assert dataset.stats().downloads == 1


def test_callbacks_have_names(make, folder):
    register_callback("noted", Noted)
    try:
        dataset = make(callbacks=["noted"])
        list(dataset)
        [made] = dataset.session.monitor.observer._callbacks
        assert made.of(ShardDownloaded)
        with pytest.raises(ConfigError, match="takes no argument"):
            make(callbacks=["noted:x"])
    finally:
        unregister("callback", "noted")
    with isolated_plugins(), pytest.raises(UnknownNameError, match="streamplug-opentelemetry"):
        make(callbacks=["opentelemetry"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([print], "no Callback"),
        ("noted", "expected a list"),
        (Failing(), "expected a list"),
        (0, "expected a list"),
        ({"noted": {"option": 1}}, "expected a list"),
    ],
)
def test_what_is_no_callback_is_refused(make, given, why):
    with pytest.raises(ConfigError, match=why):
        make(callbacks=given)


# -- on the terminal ----------------------------------------------------------------


def threads():
    return [t for t in threading.enumerate() if t.name == "streamplug-progress"]


def test_downloads_are_shown_where_wanted(make, capsys):
    dataset = make(progress_bar=True)
    iterator = iter(dataset)
    next(iterator)
    assert len(threads()) == 1
    iterator.close()
    assert threads() == []
    list(dataset)
    shown = capsys.readouterr()
    assert "downloading" in shown.err
    assert "files" in shown.err
    assert shown.out == ""


def test_nothing_is_shown_if_nothing_is_downloaded(make, capsys):
    list(make())
    list(make(progress_bar=True))
    assert capsys.readouterr().err == ""
    assert threads() == []


@pytest.mark.parametrize(
    "wishes",
    [{}, {"progress_bar": False}, {"progress_bar": True, "world": World(1, 2, rank=1)}],
    ids=["not a terminal", "not wanted", "another rank"],
)
def test_nothing_is_shown_elsewhere(make, capsys, wishes):
    list(make(**wishes))
    assert capsys.readouterr().err == ""


def test_an_error_ends_the_line(make, folder, monkeypatch):
    dataset = make(progress_bar=True)
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(ZeroDivisionError):
        iterator.throw(ZeroDivisionError)
    assert threads() == []


def test_other_wishes_for_the_line_are_refused(make):
    with pytest.raises(ConfigError, match="progress_bar='yes'"):
        make(progress_bar="yes")


PROGRAM = """
import sys
from streamplug.cache.quota import CacheQuota
from streamplug.dataset import StreamingDataset
dataset = StreamingDataset(remote=sys.argv[1], local=sys.argv[2])
assert len(list(dataset)) == 100
"""


def test_a_terminal_shows_downloads_by_itself(folder, tmp_path):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "near")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(60) == 0, shown
    os.close(ours)
    assert b"downloading" in shown
    assert b"10 files" in shown


def _read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # nobody has the other end any more
        return b""
