from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from streamplug_testing.fakes import CountingStorage, FlakyStorage, LatencyStorage
from streamplug_testing.storage import StorageTests

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import AccessDenied, NotFound, Transient


class Wrapped(StorageTests):
    @pytest.fixture(autouse=True)
    def location(self, tmp_path_factory):
        self.root = tmp_path_factory.mktemp("storage")

    def put_raw(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.root / key).read_bytes()


class TestLatency(Wrapped):
    def make_storage(self):
        return LatencyStorage(LocalStorage(str(self.root)), 0.001)


class TestFlakyThatNeverFails(Wrapped):
    def make_storage(self):
        return FlakyStorage(LocalStorage(str(self.root)))


class TestCounting(Wrapped):
    def make_storage(self):
        return CountingStorage(LocalStorage(str(self.root)))


@pytest.fixture
def inner(tmp_path):
    storage = LocalStorage(str(tmp_path / "set"))
    storage.write("k", b"0123456789")
    return storage


def test_latency_waits_once_per_operation(inner, monkeypatch):
    waits = []
    monkeypatch.setattr("streamplug_testing.fakes.time", SimpleNamespace(sleep=waits.append))
    storage = LatencyStorage(inner, 0.05)
    assert storage.read_ranges("k", [(i, i + 1) for i in range(10)])[9] == b"9"
    assert waits == [0.05]
    assert storage.read("k") == b"0123456789"
    assert waits == [0.05, 0.05]


def test_every_third_operation_fails(inner):
    storage = FlakyStorage(inner, fail_every=3)
    seen = []
    for _ in range(7):
        try:
            seen.append(storage.read("k"))
        except Transient as error:
            seen.append(str(error))
    assert [i for i, what in enumerate(seen) if isinstance(what, str)] == [2, 5]
    assert seen[2] == f"{inner.url}/k: read was made to fail"


def never_index(operation, key):
    return operation == "read" and key == "index.json"


def test_a_rule_says_what_fails_and_how(inner):
    storage = pickle.loads(pickle.dumps(FlakyStorage(inner, fail=never_index, error=AccessDenied)))
    assert storage.read("k") == b"0123456789"
    assert storage.exists("index.json") is False
    with pytest.raises(AccessDenied):
        storage.read("index.json")


def test_a_failure_comes_before_the_operation(inner):
    storage = FlakyStorage(inner, fail_every=1)
    with pytest.raises(Transient):
        storage.write("k", b"new")
    assert inner.read("k") == b"0123456789"


def test_counts_operations_and_bytes(inner, tmp_path):
    storage = CountingStorage(inner)
    storage.read("k")
    storage.read_range("k", 1, 4)
    storage.read_ranges("k", [(0, 2), (8, 20)])
    storage.download("k", tmp_path / "local")
    assert storage.bytes_read == 10 + 3 + 4 + 10
    storage.write("new", b"abc")
    storage.upload(tmp_path / "local", "new")
    assert storage.bytes_written == 3 + 10
    with pytest.raises(NotFound):
        storage.read("gone")
    assert storage.counts["read"] == 2
    assert storage.keys["read", "gone"] == 1
    assert storage.counts["list"] == 0
    assert [o.key for o in storage.list()] == ["k", "new"]
    assert storage.counts["list"] == 1


def test_counts_are_exact_under_threads(inner):
    storage = CountingStorage(inner)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: storage.read("k"), range(200)))
    assert (storage.counts["read"], storage.bytes_read) == (200, 2000)
