"""Storages that hang, in whatever they are asked for, and do not listen when told to stop."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamplug import MDSWriter, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.dataset import StreamingDataset
from streamplug.errors import AccessDenied, CorruptShardError, NotFound, StorageError, Transient
from streamplug.plugin.registry import unregister
from streamplug.plugin_kit.cancellation import OversizeError, current
from streamplug.transfer.pool import end_idle_threads
from streamplug.transfer.probe import ProbeStorage, check_reachable
from streamplug.transfer.stall_timeout import TimeoutStorage, bytes_of
from streamplug.transfer.tempdir import temp_root
from tests.stall_clock import StallClock

READS = ["read", "read_range", "read_ranges", "read_many", "stat", "serves_ranges", "download"]


class Hanging(LocalStorage):
    """A directory of which some questions are never answered."""

    gate = threading.Event()
    hangs: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()

    def __init__(self, url, **options):
        super().__init__(url.replace("hanging://", "/"), **options)

    def _wait(self, name):
        if name in type(self).hangs:
            type(self).asked += (name,)
            type(self).gate.wait(600)


def _hanging(name):
    def method(self, *args):
        self._wait(name)
        return getattr(super(Hanging, self), name)(*args)

    return method


for _name in READS:
    setattr(Hanging, _name, _hanging(_name))


@pytest.fixture(autouse=True)
def hanging(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    Hanging.gate, Hanging.hangs, Hanging.asked = threading.Event(), frozenset(), ()
    register_storage("hanging", Hanging)
    yield
    Hanging.gate.set()
    unregister("storage", "hanging")


def ask(storage, name, path):
    arguments = {
        "read_range": ("a", 1, 3), "read_ranges": ("a", [(0, 1), (2, 4)]), "download": ("a", path),
        "read_many": ([("a", 0, 1), ("a", 2, 4)],),
    }  # fmt: skip
    return getattr(storage, name)(*arguments.get(name, ("a",)))


@pytest.mark.parametrize("name", READS)
def test_whatever_hangs_is_given_up(tmp_path, name):
    (tmp_path / "a").write_bytes(b"abcd")
    Hanging.hangs = frozenset(READS)
    storage = TimeoutStorage(Hanging(str(tmp_path)), 0.2)
    with pytest.raises(Transient, match=rf"{tmp_path}/a: nothing arrived for 0.2 s"):
        ask(storage, name, tmp_path / "copy")
    # What is read is downloaded: so it is seen how much there is.
    assert Hanging.asked[0] == ("download" if name == "read" else name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_does_not_hang_is_as_without_patience(tmp_path):
    (tmp_path / "a").write_bytes(b"abcd")
    plain = LocalStorage(str(tmp_path))
    storage = TimeoutStorage(plain, 20.0)
    assert (storage.url, storage.url_of("a")) == (plain.url, plain.url_of("a"))
    for name in READS:
        found = ask(storage, name, tmp_path / "copy")
        assert found == ask(plain, name, tmp_path / "other")
    assert (tmp_path / "copy").read_bytes() == b"abcd"
    with pytest.raises(NotFound, match="nothing"):
        storage.read("nothing")
    storage.write("b", b"b")
    storage.upload(tmp_path / "a", "c")
    assert [found.key for found in storage.list()] == ["a", "b", "c", "copy", "other"]
    storage.delete("b")
    assert not storage.exists("b")
    storage.close()


def test_of_ranges_that_share_a_slow_line_none_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abcd")
    (tmp_path / "b").write_bytes(b"efgh")
    over = threading.Event()

    class Slow(LocalStorage):
        def read_ranges(self, key, ranges):
            if key == "a":
                assert over.wait(60)
            return super().read_ranges(key, ranges)

    reads = 0  # of the other file, in each of which 0.1 s pass
    clock = SimpleNamespace(monotonic=lambda: 0.1 * reads)
    monkeypatch.setattr("streamplug.transfer.stall_timeout.time", clock)
    storage, found = TimeoutStorage(Slow(str(tmp_path)), 0.4), []
    thread = threading.Thread(target=lambda: found.extend(storage.read_ranges("a", [(0, 2)])))
    thread.start()
    while reads < 40:
        assert storage.read_ranges("b", [(0, 4)]) == [b"efgh"]
        reads += 1
        time.sleep(0.03)  # in which it is looked at whether bytes arrived
    over.set()
    thread.join(20)
    assert found == [b"ab"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_who_is_left_behind_waits_no_longer(tmp_path, method):
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    worker = context.Process(target=_start, args=(method, str(tmp_path), there))
    worker.start()
    assert here.poll(60)
    assert here.recv() == "waits"
    worker.kill()
    worker.join(60)
    assert here.poll(60)
    assert here.recv().endswith("/a: the parent process has ended")


def _start(method, place, pipe):
    context = multiprocessing.get_context(method)
    context.Process(target=_wait, args=(place, pipe)).start()


def _wait(place, pipe):
    class Tells(LocalStorage):
        def read_range(self, key, start, stop):
            pipe.send("waits")
            time.sleep(600)

    try:
        TimeoutStorage(Tells(place), 600).read_range("a", 0, 1)
    except StorageError as error:
        pipe.send(str(error))


def test_a_call_for_which_there_is_no_thread_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abcd")

    def refuse(_):
        raise RuntimeError("can't start new thread")

    storage = TimeoutStorage(LocalStorage(str(tmp_path)), 20.0)
    end_idle_threads()  # those of earlier requests would be used
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Transient, match="can't start new thread; raise the limit of processes"):
        storage.read_range("a", 0, 2)
    monkeypatch.undo()
    assert storage.read_range("a", 0, 2) == b"ab"


@pytest.mark.parametrize(
    ("access", "hangs"),
    [("shard", "download"), ("range", "read_ranges")],
)
def test_a_data_set_on_any_storage_keeps_to_its_timeout(tmp_path: Path, access, hangs, monkeypatch):
    far = tmp_path / "far"
    with MDSWriter(out=far, columns={"n": "int"}) as out:
        out.write({"n": 1})

    def use():
        return StreamingDataset(
            remote=f"hanging:/{far}", local=str(tmp_path / "near"), access=access,
            download_timeout=0.2, download_retry=1, download_patience=0,
        )[0]  # fmt: skip

    clock, wait = StallClock(monkeypatch), Hanging._wait

    def hang(storage, name):
        if name in Hanging.hangs:
            clock.hang(str(far))
        wait(storage, name)

    monkeypatch.setattr(Hanging, "_wait", hang)
    Hanging.hangs = frozenset({hangs})
    with pytest.raises(Transient, match=r"nothing arrived for 0.2 s"):
        use()
    assert hangs in Hanging.asked
    Hanging.hangs = frozenset()
    assert use() == {"n": 1}


class WithoutRanges(Hanging):
    def read_range(self, key, start, stop):
        raise Transient("no ranges today")


def test_a_probe_that_is_answered_forgets_an_earlier_failure(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")

    probe = ProbeStorage(WithoutRanges(f"hanging://{tmp_path}"), 5)
    with pytest.raises(Transient):
        probe.read_range("a", 0, 1)
    assert isinstance(probe.failure, Transient)
    assert probe.read("a") == b"abc"
    assert probe.failure is None
    with pytest.raises(Transient):
        probe.read_range("a", 0, 1)
    with pytest.raises(NotFound):
        probe.read("b")
    assert probe.failure is None


def test_a_directory_that_hangs_is_no_failure_of_others(tmp_path):
    for name in ("dead", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"abc")
    Hanging.hangs = frozenset({"read_range"})
    dead = ProbeStorage(Hanging(f"hanging://{tmp_path}/dead"), 0.1)
    with pytest.raises(StorageError, match="nothing arrived"):
        dead.read_range("a", 0, 1)
    good = ProbeStorage(LocalStorage(f"{tmp_path}/good"), 5)
    assert good.read("a") == b"abc"


@pytest.mark.parametrize(("timeout", "is_advised"), [(0.1, True), (0.3, False)])
def test_a_timeout_that_has_no_effect_is_not_advised(tmp_path, monkeypatch, timeout, is_advised):
    monkeypatch.setattr("streamplug.transfer.probe.PROBE_SECONDS", 0.3)
    (tmp_path / "a").write_bytes(b"abc")
    Hanging.hangs = frozenset({"read_range", "stat"})
    storage = Hanging(f"hanging://{tmp_path}")
    with pytest.raises(StorageError, match="check the network") as probed:
        ProbeStorage(storage, timeout).read_range("a", 0, 1)
    with pytest.raises(StorageError, match="check the network") as missing:
        check_reachable(storage, "a", tmp_path, timeout, 0)
    for error in (probed, missing):
        assert ("raise download_timeout=" in str(error.value)) == is_advised


def test_a_temporary_directory_that_fails_is_no_failure_of_the_remote(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    temp_root().write_text("a file is in the way")

    probe = ProbeStorage(WithoutRanges(f"hanging://{tmp_path}"), 5)
    with pytest.raises(Transient):
        probe.read_range("a", 0, 1)
    with pytest.raises(AccessDenied, match="set TMPDIR to a directory of your own"):
        probe.read("a")
    assert probe.failure is None
    temp_root().unlink()
    assert probe.read("a") == b"abc"


def test_a_local_copy_does_not_stand_in_where_the_temporary_directory_fails(tmp_path, monkeypatch):
    def write(n):
        with MDSWriter(out=tmp_path / "far", columns={"n": "int"}, max_samples_per_shard=1) as out:
            for _ in range(4):
                out.write({"n": n})

    def use():
        return StreamingDataset(remote=f"hanging:/{tmp_path}/far", local=str(tmp_path / "near"))

    monkeypatch.setattr("streamplug.source.index_source._FIRST_READ_BYTES", 100)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    write(1)
    assert use()[0] == {"n": 1}
    shutil.rmtree(tmp_path / "far")
    write(2)
    shutil.rmtree(temp_root())
    temp_root().write_text("a file is in the way")
    with pytest.raises(AccessDenied, match="set TMPDIR to a directory of your own"):
        use()


def test_bytes_of_partial_files_are_counted_whatever_their_name(tmp_path):
    for name in ("a[1]", "a[1].part", "a1", "b"):
        (tmp_path / name).write_bytes(bytes(10))
    assert bytes_of(tmp_path / "a[1]") == 20


@pytest.mark.parametrize("wrap", [TimeoutStorage, ProbeStorage])
def test_objects_of_unknown_size_are_read_up_to_a_limit_or_their_size(tmp_path, monkeypatch, wrap):
    monkeypatch.setattr("streamplug.transfer.stall_timeout.MAX_UNSIZED_BYTES", 10)
    stats = []

    class Growing(LocalStorage):
        def stat(self, key):
            stats.append(key)
            info = super().stat(key)
            return info if key == "large" else replace(info, size=5)

        def download(self, key, path):
            data = (tmp_path / key).read_bytes()
            if len(data) > current().max_bytes:
                raise OversizeError("more than that")
            path.write_bytes(data)

    sizes = {"small": 10, "large": (3 << 20) + 1, "endless": (3 << 20) + 1}
    for key, size in sizes.items():
        (tmp_path / key).write_bytes(bytes(size))
    storage = wrap(Growing(str(tmp_path)), 5.0)
    assert len(storage.read("small")) == 10
    assert stats == []
    assert len(storage.read("large")) == sizes["large"]
    assert stats == ["large"]
    with pytest.raises(
        CorruptShardError, match="endless has more than 1048596 bytes where 10 were"
    ):
        storage.read("endless")


def test_a_listing_that_fails_in_a_plugin_names_the_url(tmp_path):
    class Broken(LocalStorage):
        def list(self, prefix=""):
            yield from super().list(prefix)
            raise ConnectionResetError("secret")

    with pytest.raises(Transient, match="/far/a: ConnectionResetError") as caught:
        list(TimeoutStorage(Broken("/far"), 5.0).list("a"))
    assert "secret" not in str(caught.value)
