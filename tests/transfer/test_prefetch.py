from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from streamplug.errors import NotFound
from streamplug.plugin_kit import sleep
from streamplug.transfer.prefetch import Handover, PrefetchLimits, prefetch_blocks
from streamplug.types import Int64

BLOCKS = [[0, 1], [1, 2], [2], [3, 4, 5], [0]]


class Block(list[int]):
    """A block of samples of some shards; it has ten, in turns of its shards."""

    @property
    def ids(self) -> Int64:
        return np.resize(np.array(self, np.int64), 10)

    def split(self) -> list[Block]:
        return [Block([shard]) for shard in self]


class Shards:
    """Records which shards were made ready, and what else a window asks for."""

    def __init__(
        self,
        fail: int | None = None,
        slow: float = 0.0,
        ensure: Callable[[int], object] = lambda _: None,
        weight: int = 0,
    ) -> None:
        self.ready: list[int] = []
        self.events: list[tuple[str, int]] = []
        self._fail, self._slow, self._ensure, self._weight = fail, slow, ensure, weight

    @property
    def released(self) -> list[int]:
        return [shard for event, shard in self.events if event == "release"]

    def needs(self, ids: Int64) -> list[int]:
        return list(dict.fromkeys(ids.tolist()))

    def weight(self, shard: int) -> int:
        return self._weight

    def ensure(self, shard: int) -> None:
        time.sleep(self._slow)
        if shard == self._fail:
            raise NotFound(f"shard {shard} is missing")
        self._ensure(shard)
        self.events.append(("ready", shard))
        self.ready.append(shard)

    def claim(self, shard: int) -> None:
        self.events.append(("claim", shard))

    def release(self, shard: int) -> None:
        self.events.append(("release", shard))


def prefetch(blocks, shards: Shards, limits: PrefetchLimits, use=lambda block: [block]):
    return prefetch_blocks(map(Block, blocks), shards, use, limits)


def run(shards: Shards, ahead: int | None, blocks: object = None) -> Iterator[list[int]]:
    return prefetch(BLOCKS if blocks is None else blocks, shards, PrefetchLimits(ahead))


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streamplug-prefetch")]


@pytest.mark.parametrize("ahead", [0, 1, 10, 25, 1000, None])
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
    deadline = time.monotonic() + 60
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


@pytest.mark.parametrize("ahead", [0, 15, 1000, None])
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
    begun = []

    def ensure(shard: int) -> None:
        begun.append(shard)
        if shard:
            sleep(60)  # it ends when what is queued has been dropped

    blocks = [[0], *([number] for number in range(1, 100))]
    it = prefetch(blocks, Shards(ensure=ensure), PrefetchLimits(1000))
    assert next(it) == [0]
    it.close()
    assert len(begun) < 20
    assert threads() == []


def test_no_threads_stay_after_the_end():
    assert len(list(run(Shards(), 10))) == 5
    assert threads() == []


def test_without_a_number_it_looks_as_far_ahead_as_bytes_allow():
    seen: list[int] = []

    def blocks() -> Iterator[list[int]]:
        for number in range(200):
            seen.append(number)
            yield [number]

    shards = Shards(weight=100)
    it = prefetch(blocks(), shards, PrefetchLimits(bytes=1000, bytes_in_flight=100, max_running=2))
    ahead = []
    for (number,) in it:
        time.sleep(0.001)
        ahead.append(len(seen) - number - 1)
    assert ahead[0] == 1  # the first is not held up
    assert max(ahead) in (9, 10)
    assert sorted(shards.ready) == list(range(200))


def test_what_a_block_needed_is_released_when_the_next_is_asked_for():
    shards = Shards()
    it = run(shards, 1000)
    next(it)
    assert shards.released == []
    next(it)
    assert shards.released == []  # 0 is needed by the last block, 1 by this one
    next(it)
    assert shards.released == [1]
    it.close()
    assert sorted(shards.released) == [0, 1, 2, 3, 4, 5]


def test_a_thread_that_waits_for_another_process_lets_others_work():
    from streamplug.plugin_kit.cancellation import idle

    arrived = threading.Event()

    def ensure(shard: int) -> None:
        if shard == 0:
            with idle():
                assert arrived.wait(20)
        else:
            arrived.set()

    it = prefetch([[0, 1]], Shards(ensure=ensure), PrefetchLimits(max_running=1))
    assert list(it) == [[0, 1]]


def test_a_block_comes_in_parts_up_to_the_one_that_fails():
    it = prefetch([[0, 1, 3, 2]], Shards(fail=3), PrefetchLimits())
    assert [next(it), next(it)] == [[0], [1]]
    with pytest.raises(NotFound, match="shard 3 is missing"):
        next(it)


def test_so_many_samples_ahead_are_never_exceeded_by_more_than_a_block():
    seen = []

    def blocks() -> Iterator[list[int]]:
        for number in range(20):
            seen.append(number)
            yield [number]

    for samples in (None, 1000):
        seen.clear()
        shards = Shards()
        it = prefetch(blocks(), shards, PrefetchLimits(samples, max_samples=25))
        for (number,) in it:
            assert len(seen) - number - 1 <= 3
        assert len(seen) == 20


def test_what_begins_to_be_needed_is_claimed_before_it_is_ready_and_released_once():
    shards = Shards()
    for block in run(shards, 15):
        assert {("claim", shard) for shard in block} <= set(shards.events)
    for shard in range(6):
        mine = [event for event, n in shards.events if n == shard]
        assert mine == ["claim", "ready", "release"] * (len(mine) // 3)
        assert mine


def test_nothing_else_is_fetched_before_the_very_first_value_is_made():
    shards, events = Shards(), []

    def use(block: list[int]) -> Iterator[str]:
        for part in "ab":
            events.append((block[0], part, sorted(shards.ready)))
            yield f"{block[0]}{part}"

    it = prefetch([[0], [1], [2]], shards, PrefetchLimits(1000), use)
    assert list(it) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert events[0] == (0, "a", [0])
    assert events[-1] == (2, "b", [0, 1, 2])


class Gate:
    """Lets jobs end when it is opened, and notes those that have begun."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.is_open = threading.Event()

    def __call__(self, shard: int) -> None:
        self.begun.append(shard)
        assert self.is_open.wait(60)


def test_jobs_go_on_that_the_next_blocks_need():
    gate = Gate()
    shards, handover = Shards(ensure=lambda shard: shard and gate(shard)), Handover()
    limits = PrefetchLimits(40, max_running=3)
    read = lambda blocks: prefetch_blocks(  # noqa: E731
        map(Block, blocks), shards, lambda block: [block], limits, handover=handover
    )
    first = read([[0], [1], [2], [3], [4], [5]])
    assert next(first) == [0]
    while len(gate.begun) < 3:
        time.sleep(0.001)
    handover.leave(first)
    second = read([[2], [3], [6]])
    gate.is_open.set()
    assert list(second) == [[2], [3], [6]]
    assert sorted(gate.begun) == [1, 2, 3, 6]  # each once; 4 and 5 were queued, and are not needed
    claims = [shard for event, shard in shards.events if event == "claim"]
    assert sorted(claims) == sorted(shards.released)
    assert not threads()


def test_jobs_end_that_no_generator_has_taken_over():
    shards, handover = Shards(slow=0.01), Handover()
    first = prefetch_blocks(
        map(Block, BLOCKS), shards, lambda block: [block], PrefetchLimits(40), handover=handover
    )
    next(first)
    handover.leave(first)
    handover.close()
    claims = [shard for event, shard in shards.events if event == "claim"]
    assert sorted(claims) == sorted(shards.released)
    assert not threads()
