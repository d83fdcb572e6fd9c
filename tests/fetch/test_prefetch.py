from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from streamplug.errors import NotFound
from streamplug.fetch import prefetched

BLOCKS = [[0, 1], [1, 2], [2], [3, 4, 5], [0]]


class Shards:
    """Records which shards were made ready, and when."""

    def __init__(self, fail: int | None = None, slow: float = 0.0) -> None:
        self.ready: list[int] = []
        self.fail, self.slow = fail, slow

    def ensure(self, shard: int) -> None:
        time.sleep(self.slow)
        if shard == self.fail:
            raise NotFound(f"shard {shard} is missing")
        self.ready.append(shard)


def run(shards: Shards, ahead: int, blocks: object = None) -> Iterator[list[int]]:
    return prefetched(
        BLOCKS if blocks is None else blocks,  # type: ignore[arg-type]
        shards_of=lambda block: block,
        samples=lambda block: 10,
        ensure=shards.ensure,
        ahead=ahead,
    )


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streamplug-prefetch")]


@pytest.mark.parametrize("ahead", [0, 1, 10, 25, 1000])
def test_blocks_come_in_order_with_their_shards_ready(ahead):
    shards = Shards(slow=0.002)
    for number, block in enumerate(run(shards, ahead)):
        assert block == BLOCKS[number]
        assert set(block) <= set(shards.ready)
    assert number == len(BLOCKS) - 1


def test_no_blocks_give_none():
    assert list(run(Shards(), 10, [])) == []


@pytest.mark.parametrize(("ahead", "taken"), [(0, 1), (10, 2), (15, 3), (20, 3), (1000, 5)])
def test_so_many_samples_are_looked_ahead(ahead, taken):
    seen = []

    def blocks() -> Iterator[list[int]]:
        for block in BLOCKS:
            seen.append(block)
            yield block

    it = run(Shards(), ahead, blocks())
    next(it)
    assert seen == BLOCKS[:taken]
    it.close()


def test_later_shards_are_fetched_while_a_block_is_used():
    shards = Shards()
    it = run(shards, 1000)
    next(it)
    deadline = time.monotonic() + 10
    while set(shards.ready) != {0, 1, 2, 3, 4, 5} and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sorted(shards.ready) == [0, 1, 2, 3, 4, 5]
    it.close()


def test_a_shard_that_waits_already_is_not_asked_for_twice():
    shards = Shards()
    list(run(shards, 1000))
    # Shard 0 again in the last block: the first had been used up by then, or not.
    assert sorted(set(shards.ready)) == [0, 1, 2, 3, 4, 5]
    assert shards.ready.count(1) == shards.ready.count(2) == 1


@pytest.mark.parametrize("ahead", [0, 15, 1000])
def test_a_failure_comes_at_the_block_that_needs_the_shard(ahead):
    it = run(Shards(fail=3), ahead)
    assert [next(it) for _ in range(3)] == BLOCKS[:3]
    with pytest.raises(NotFound, match=r"shard 3 is missing"):
        next(it)
    assert threads() == []


def test_a_failure_of_a_block_that_is_never_reached_is_not_raised():
    it = run(Shards(fail=3), 1000)
    next(it)
    it.close()
    assert threads() == []


def test_closing_drops_what_has_not_begun():
    gate = threading.Event()
    begun = []

    def ensure(shard: int) -> None:
        begun.append(shard)
        if shard:
            gate.wait(10)

    it = prefetched(
        [[0], *([number] for number in range(1, 100))],
        shards_of=lambda block: block,
        samples=lambda block: 1,
        ensure=ensure,
        ahead=1000,
    )
    assert next(it) == [0]
    threading.Timer(0.05, gate.set).start()
    it.close()
    assert len(begun) < 20
    assert threads() == []


def test_no_threads_stay_after_the_end():
    assert len(list(run(Shards(), 10))) == 5
    assert threads() == []
