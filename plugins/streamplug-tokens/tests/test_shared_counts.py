"""Processes that count the same shards divide them, and none waits for one that does not come."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from streamplug_tokens import shared_counts
from streamplug_tokens.shared_counts import SharedCounts, connect_store

from tests.rank_group import run_ranks

SHARDS = [2, 3, 5, 7, 11, 13]


class Store:
    """The store of a process group, in this process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            return total

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)


def lengths_of(shard: int) -> np.ndarray:
    return np.arange(shard) * 1_000_000_007


def run(store: Store | None, counted: list[int], **options: Any) -> dict[int, list[int]]:
    def count(shard: int) -> np.ndarray:
        counted.append(shard)
        time.sleep(options.get("seconds", 0))
        if shard == options.get("fails_at"):
            raise ValueError(shard)
        return lengths_of(shard)

    found = SharedCounts(store, "name").count(SHARDS, count, options.get("max_threads", 2))
    return {shard: lengths.tolist() for shard, lengths in found}


EXPECTED = {shard: lengths_of(shard).tolist() for shard in SHARDS}


@pytest.mark.parametrize("store", [None, Store()])
def test_a_process_alone_counts_all(store):
    counted: list[int] = []
    assert run(store, counted) == EXPECTED
    assert sorted(counted) == SHARDS


def test_processes_divide_the_shards():
    store, counted = Store(), [[], [], []]
    found: list[Any] = [None] * 3

    def process(number: int) -> None:
        found[number] = run(store, counted[number], seconds=0.01)

    threads = [threading.Thread(target=process, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [EXPECTED] * 3
    assert sorted(shard for of_process in counted for shard in of_process) == SHARDS
    late: list[int] = []
    assert run(store, late) == EXPECTED
    assert late == []


def test_shards_of_a_process_that_ended_are_counted_by_others(monkeypatch):
    monkeypatch.setattr(shared_counts, "_PATIENCE_SECONDS", 0.0)
    store, counted = Store(), []
    store.add("streamplug/tokens/name/next", 2)  # it took two shards, and published nothing
    assert run(store, counted) == EXPECTED
    assert sorted(counted) == SHARDS


def test_errors_are_found_by_all():
    store = Store()
    with pytest.raises(ValueError, match="5"):
        run(store, [], fails_at=5, max_threads=1)
    with pytest.raises(ValueError, match="5"):
        run(store, [], fails_at=5, max_threads=1)
    assert run(store, []) == EXPECTED


def test_without_a_process_group_nothing_is_shared():
    assert connect_store() is None


def count_as_rank(rank: int) -> list[Any]:
    counted: list[int] = []
    return [run(connect_store(), counted, seconds=0.05, max_threads=1), counted]


def test_ranks_of_a_process_group_divide_the_shards():
    pytest.importorskip("torch")
    results = run_ranks(2, count_as_rank)
    found = [{int(shard): lengths for shard, lengths in result.items()} for result, _ in results]
    assert found == [EXPECTED] * 2
    assert sorted(shard for _, counted in results for shard in counted) == SHARDS
