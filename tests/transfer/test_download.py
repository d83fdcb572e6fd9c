from __future__ import annotations

import errno
import io
import itertools
import socket
import ssl
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import (
    AccessDenied,
    CorruptShardError,
    HashMismatchError,
    NotFound,
    StorageError,
    Transient,
)
from streamplug.plugin_kit.cancellation import Cancelled, OversizeError, current
from streamplug.transfer import ranges as ranged
from streamplug.transfer import retry, stall_timeout
from streamplug.transfer.download import download_file
from streamplug.transfer.locks import cache_lock
from streamplug.transfer.pool import ThreadPool
from streamplug.types import FileInfo, ObjectInfo
from tests.stall_clock import StallClock


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)


class Far(LocalStorage):
    """Does as it is told, a list of actions, one for each attempt."""

    def __init__(self, *actions):
        super().__init__("/far")
        self.actions = list(actions)
        self.paths: list[Path] = []

    def download(self, key, path):
        self.paths.append(path)
        self.actions.pop(0)(path)


@pytest.fixture
def clock(monkeypatch):
    return StallClock(monkeypatch)


@pytest.fixture
def gate():
    opened = threading.Event()
    yield opened
    opened.set()


def whole(path):
    path.write_bytes(b"whole")


def get(far, tmp_path, retries=0, timeout=60, size=5, **more):
    target = tmp_path / "part"
    download_file(
        far, FileInfo("shard", size, {}), target, retries=retries, timeout=timeout, **more
    )
    return target.read_bytes()


def test_an_object_arrives(tmp_path):
    assert get(Far(whole), tmp_path) == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_nothing_that_arrives_is_given_up(tmp_path, gate):
    began = time.monotonic()
    with pytest.raises(Transient) as caught:
        get(Far(lambda path: gate.wait()), tmp_path, timeout=0.2)
    assert time.monotonic() - began >= 0.2
    assert str(caught.value).startswith("/far/shard: nothing arrived for 0.2 s, after 0 bytes; ")
    assert "download_timeout=" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_time_in_which_this_process_was_suspended_does_not_count(tmp_path, monkeypatch):
    looks, looked = itertools.count(1), threading.Event()

    def jump():
        look = next(looks)
        if look > 3:
            looked.set()
        return 100.0 * (look > 2)

    monkeypatch.setattr("streamplug.transfer.stall_timeout.time", SimpleNamespace(monotonic=jump))
    far = Far(lambda path: (looked.wait(60), whole(path)))
    assert get(far, tmp_path, timeout=0.8) == b"whole"
    assert looked.is_set()


def test_an_attempt_that_was_given_up_does_not_disturb_the_next(tmp_path, gate, clock):
    late = threading.Event()

    def stall(path):
        with path.open("wb") as file:
            file.write(b"beginning")
            file.flush()
            clock.hang("shard")
            gate.wait()
            file.write(b"damage" * 1000)
        late.set()

    assert get(Far(stall, whole), tmp_path, retries=1, timeout=0.2) == b"whole"
    gate.set()
    assert late.wait(60)
    assert (tmp_path / "part").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_what_an_attempt_begins_after_it_was_given_up_does_not_stay(tmp_path, gate, clock):
    threads = []

    def late(path):
        threads.append(threading.current_thread())
        clock.hang("shard")
        gate.wait()
        path.write_bytes(b"damage")

    assert get(Far(late, whole), tmp_path, retries=1, timeout=0.2) == b"whole"
    assert threads[0].name == "streamplug-request"
    gate.set()
    threads[0].join(60)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize("suffix", ["", ".client"])
def test_what_arrives_slowly_is_not_given_up(tmp_path, suffix, monkeypatch):
    passed = 0.0
    monkeypatch.setattr(
        "streamplug.transfer.stall_timeout.time", SimpleNamespace(monotonic=lambda: passed)
    )

    def slow(path):
        nonlocal passed
        # Some clients write to a name of their own at first.
        first = path.with_name(path.name + suffix)
        with first.open("wb") as file:
            for _ in range(12):
                time.sleep(0.03)  # in which it is looked at once or twice
                file.write(b"x")
                file.flush()
                passed += 0.1
        first.replace(path)

    assert get(Far(slow), tmp_path, timeout=0.4) == b"x" * 12


def endless(path):
    with path.open("wb") as file:
        while not current().stopped:
            file.write(bytes(1 << 16))
            time.sleep(0.001)


def endless_in_blocks(path):
    with path.open("wb", buffering=0) as file:
        while file.tell() + (1 << 16) <= current().max_bytes:
            file.write(bytes(1 << 16))
    raise OversizeError("more than that")


@pytest.mark.parametrize("write", [endless, endless_in_blocks])
@pytest.mark.usefixtures("clock")
def test_what_is_far_larger_than_the_index_says_is_not_received(tmp_path, write):
    sizes = []

    def watched(path):
        try:
            write(path)
        finally:
            sizes.append(path.stat().st_size if path.exists() else 0)

    with pytest.raises(
        CorruptShardError, match=r"^/far/shard has more than 1048586 bytes where 5 were expected; "
    ):
        get(Far(watched, watched), tmp_path, retries=1, timeout=0.4)
    assert list(tmp_path.iterdir()) == []
    if write is endless_in_blocks:
        assert len(sizes) == 2
        assert max(sizes) <= 1048586


def test_no_thread_that_hangs_keeps_the_process_from_ending(tmp_path, gate):
    with pytest.raises(Transient):
        get(Far(lambda path: gate.wait()), tmp_path, timeout=0.2)
    hanging = [t for t in threading.enumerate() if t.name == "streamplug-request"]
    assert hanging
    assert all(thread.daemon for thread in hanging)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StorageError, ValueError])
def test_errors_come_through(tmp_path, error):
    def fail(path):
        path.write_bytes(b"half")
        raise error("so it is")

    with pytest.raises(error, match="so it is"):
        get(Far(fail), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_taken_for_a_failure_of_the_storage(tmp_path):
    class Full(Far):
        def download(self, key, path):
            with self.translated(key):
                raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as caught:
        get(Full(), tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path) in caught.value.filename


def test_a_local_file_without_permission_is_not_taken_for_a_failure_of_the_storage(tmp_path):
    class Denied(Far):
        def download(self, key, path):
            with self.translated(key):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(PermissionError, match="Permission denied") as caught:
        get(Denied(), tmp_path)
    assert not isinstance(caught.value, StorageError)
    assert str(tmp_path) in caught.value.filename


def test_a_disk_that_fails_is_not_taken_for_a_failure_of_the_storage(tmp_path):
    class FailingFile(io.FileIO):
        def write(self, data):
            raise OSError(errno.EIO, "Input/output error")

    def fail(path):
        with FailingFile(path, "wb") as file:
            try:
                file.write(b"data")
            except OSError as error:
                error.filename = file.name
                raise

    with pytest.raises(OSError, match="Input/output error") as caught:
        get(Far(fail), tmp_path)
    assert not isinstance(caught.value, StorageError)
    assert str(tmp_path) in caught.value.filename


class ClientError(Exception):
    """What a client raises for a failure of its connection, which it names as the cause."""


def client_error():
    error = ClientError("secret")
    error.__cause__ = ConnectionResetError("secret")
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError(errno.ECONNRESET, "secret"), Transient),
        (TimeoutError("secret"), Transient),
        (socket.gaierror(socket.EAI_AGAIN, "secret"), Transient),
        (ssl.SSLEOFError("secret"), Transient),
        (OSError(errno.EHOSTUNREACH, "secret"), Transient),
        (client_error(), Transient),
        (OSError("secret"), StorageError),
        (OSError(errno.EIO, "secret"), StorageError),
        (PermissionError(errno.EACCES, "secret", "/etc/key"), AccessDenied),
        (FileNotFoundError(errno.ENOENT, "secret"), NotFound),
    ],
    ids=repr,
)
def test_what_a_plugin_lets_through_names_the_url(tmp_path, error, kind):
    def fail(path):
        path.write_bytes(b"half")
        raise error

    with pytest.raises(StorageError, match="/far/shard") as caught:
        get(Far(fail), tmp_path)
    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)
    assert "local=" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    far = Far(fail, whole)
    if kind is Transient:
        assert get(far, tmp_path, retries=1) == b"whole"
    else:
        with pytest.raises(kind):
            get(far, tmp_path, retries=1)


def test_parts_that_fail_in_a_plugin_are_read_again(tmp_path, small_parts):
    failures = [ConnectionResetError("secret"), TimeoutError("secret")]

    def read():
        if failures:
            raise failures.pop()

    far = InParts(read)
    assert get(far, tmp_path, retries=2) == b"whole"
    assert far.paths == []


@pytest.mark.parametrize("kind", [NotFound, StorageError])
def test_a_directory_that_vanished_is_not_taken_for_a_failure_of_the_storage(tmp_path, kind):
    folder = tmp_path / "folder"
    folder.mkdir()

    def vanish(path):
        folder.rmdir()
        raise kind("/far/shard does not exist")

    with pytest.raises(FileNotFoundError) as caught:
        get(Far(vanish), folder)
    assert not isinstance(caught.value, StorageError)


class InParts(Far):
    """Has an object in parts, too, of which reading one does as it is told."""

    def __init__(self, read, *actions):
        super().__init__(*actions)
        self.read = read
        self.versions = itertools.repeat("1")

    def stat(self, key):
        return ObjectInfo(key, 5, next(self.versions))

    def read_ranges(self, key, ranges):
        self.read()
        return [b"whole"[start:stop] for start, stop in ranges]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(ranged, "PARALLEL_DOWNLOAD_BYTES", 5)
    monkeypatch.setattr(ranged, "PART_BYTES", 1)
    monkeypatch.setattr(ranged, "PARTS_IN_FLIGHT", 2)


def test_a_large_object_comes_in_parts(tmp_path, small_parts):
    requests = []
    assert get(InParts(lambda: requests.append(1)), tmp_path) == b"whole"
    assert len(requests) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


# `stat` is called before the first parts and after each of three.
@pytest.mark.parametrize("versions", ["12", "112", "1112", "121"])
def test_parts_of_a_replaced_object_give_way_to_the_whole(tmp_path, small_parts, caplog, versions):
    far = InParts(lambda: None, lambda path: path.write_bytes(b"other"))
    far.versions = iter(versions)
    assert get(far, tmp_path) == b"other"
    assert "/far/shard: it was replaced while it was read; " in caplog.text
    assert caplog.text.count("downloading it as a whole") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_an_object_without_versions_comes_as_a_whole(tmp_path, small_parts):
    requests = []
    far = InParts(lambda: requests.append(1), whole)
    far.versions = itertools.repeat("")
    assert get(far, tmp_path) == b"whole"
    assert requests == []


def test_parts_that_stall_give_way_to_the_whole(tmp_path, small_parts, gate, clock, caplog):
    def hang():
        clock.hang("shard")
        gate.wait()

    assert get(InParts(hang, whole), tmp_path, timeout=0.2) == b"whole"
    assert "nothing arrived for 0.2 s, after 0 bytes" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_no_stall_timeout_runs_between_attempts_at_parts(tmp_path, small_parts, monkeypatch):
    requests, pauses, timers = [], [], []
    wait = stall_timeout._wait

    def count(*arguments):
        timers.append(1)
        try:
            wait(*arguments)
        finally:
            timers.pop()

    def read():
        requests.append(1)
        if len(requests) == 2:
            error = Transient("/far/shard: busy")
            error.retry_after = 40.0
            raise error

    monkeypatch.setattr(stall_timeout, "_wait", count)
    monkeypatch.setattr(retry, "sleep", lambda seconds: pauses.append((seconds, len(timers))))
    far = InParts(read)
    assert get(far, tmp_path, retries=1, timeout=20) == b"whole"
    assert (pauses, len(requests), far.paths) == ([(40.0, 0)], 4, [])
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize("tries", [0, 1])
def test_parts_that_a_busy_server_refuses_are_an_error_after_the_retries(
    tmp_path, small_parts, tries
):
    requests = []

    def refuse():
        requests.append(1)
        raise Transient("/far/shard: busy")

    far = InParts(refuse)
    with pytest.raises(Transient, match=f"^/far/shard: busy; gave up after {tries + 1} attempt"):
        get(far, tmp_path, retries=tries)
    assert (len(requests), far.paths, list(tmp_path.iterdir())) == (tries + 1, [], [])


def test_the_whole_object_comes_when_ranges_are_served_no_more(tmp_path, small_parts):
    far = InParts(lambda: None, whole)
    answers = iter([True, False])
    far.serves_ranges = lambda key: next(answers)
    assert get(far, tmp_path) == b"whole"
    assert len(far.paths) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


class Damaged:
    """Finds so many copies damaged."""

    def __init__(self, times):
        self.times = times

    def __call__(self, path):
        assert path.read_bytes() == b"whole"
        self.times -= 1
        if self.times >= 0:
            raise HashMismatchError("damaged")


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_damaged_copy_is_downloaded_again(tmp_path, times):
    far = Far(whole, whole, whole)
    assert get(far, tmp_path, retries=2, check_copy=Damaged(times)) == b"whole"
    assert len(far.paths) == times + 1
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_copy_that_is_always_damaged_is_an_error(tmp_path, retries):
    far = Far(*[whole] * 5)
    with pytest.raises(HashMismatchError, match=f"^damaged; gave up after {retries + 1} attempt"):
        get(far, tmp_path, retries=retries, check_copy=Damaged(9))
    assert len(far.paths) == retries + 1
    assert list(tmp_path.iterdir()) == []


def test_a_copy_in_parts_that_is_damaged_gives_way_to_the_whole(tmp_path, small_parts, caplog):
    far = InParts(lambda: None, whole)
    assert get(far, tmp_path, retries=1, check_copy=Damaged(1)) == b"whole"
    assert len(far.paths) == 1
    assert "damaged: downloading it as a whole" in caplog.text


def test_a_copy_in_parts_that_is_damaged_is_an_error_without_retries(tmp_path, small_parts):
    far = InParts(lambda: None, whole)
    with pytest.raises(HashMismatchError, match=r"^damaged"):
        get(far, tmp_path, check_copy=Damaged(1))
    assert far.paths == []


def stopped(work, begun):
    """Stop a worker that has begun, before `ThreadPool` would give up; returns what it raised."""
    workers = ThreadPool(1)
    job = workers.submit(work)
    assert begun.wait(60)
    workers.stop()
    assert job.done
    return job.error


def test_a_download_ends_when_nobody_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.stall_timeout._POLL_SECONDS", 600.0)
    monkeypatch.setattr("streamplug.transfer.pool.STOP_SECONDS", 600.0)
    begun = threading.Event()

    def listen(path):
        path.write_bytes(b"half")
        begun.set()
        current().wait(600)
        raise Cancelled

    # At once, not when it is next looked at.
    assert isinstance(stopped(lambda: get(Far(listen), tmp_path, timeout=6000), begun), Cancelled)
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_cannot_be_interrupted_is_left_alone(tmp_path, gate, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.pool.STOP_SECONDS", 600.0)
    begun = threading.Event()

    def hang(path):
        begun.set()
        gate.wait()

    assert isinstance(stopped(lambda: get(Far(hang), tmp_path, timeout=600), begun), Cancelled)


def test_waiting_for_a_lock_ends_when_nobody_needs_it(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.pool.STOP_SECONDS", 600.0)
    begun = threading.Event()

    def wait():
        begun.set()
        with cache_lock(tmp_path, "shard"):
            pass

    with cache_lock(tmp_path, "shard"):
        assert isinstance(stopped(wait, begun), Cancelled)
