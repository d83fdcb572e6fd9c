"""One reading process, which prefetches by `streamplug.transfer.prefetch`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress

from streamplug.run import Block
from streamplug.transfer import PrefetchLimits, PrefetchWindow
from streamplug_simulate.model.events import EventQueue
from streamplug_simulate.model.node_cache import NodeCache, Threads
from streamplug_simulate.model.planned_dataset import WeighedReader


class Worker:
    """One reading process.

    Attributes:
        ended: Whether the last batch is ready.
    """

    def __init__(
        self,
        events: EventQueue,
        node: NodeCache,
        reader: WeighedReader,
        *,
        ahead: tuple[Iterator[Block], PrefetchLimits],
        on_batch: Callable[[int], None],
        initial_batches: int,
    ) -> None:
        """Start reading.

        Args:
            events: The event queue.
            node: Cache of the node.
            reader: Returns the shards of samples and their sizes.
            ahead: Blocks to read, and the prefetch limits.
            on_batch: Called with the step of each batch, and with -1 after the last.
            initial_batches: Batches made before more are requested.
        """
        self._events, self._node, self._on_batch = events, node, on_batch
        blocks, limits = ahead
        threads = Threads(node, limits.max_running)
        # That of runs: a model of the prefetcher could not be checked against the program that runs.
        self._window = PrefetchWindow(blocks, _ShardReader(reader, threads), limits, threads)
        self._requested_batches, self._is_idle, self.ended = initial_batches, False, False
        self._steps = self._run()
        events.schedule(events.now, self._resume)

    def request_batch(self) -> None:
        """Request one more batch."""
        self._requested_batches += 1
        if self._is_idle:
            self._is_idle = False
            self._events.schedule(self._events.now, self._resume)

    def _resume(self) -> None:
        with suppress(StopIteration):
            next(self._steps)

    def _run(self) -> Generator[None, None, None]:
        window, begun = self._window, False
        shards: Sequence[int] = ()
        while True:
            yield from self._await_request()
            window.forget(shards)
            if not window.look():
                self.ended = True
                self._on_batch(-1)
                return
            block, shards = yield from self._pop_block(alone=not begun)
            window.fill()
            begun = True
            for number, (step, _) in enumerate(block.batches()):
                if number:
                    yield from self._await_request()
                self._node.use(shards)
                self._on_batch(step)

    def _await_request(self) -> Generator[None, None, None]:
        if not self._requested_batches:
            self._is_idle = True
            yield
        self._requested_batches -= 1

    def _pop_block(self, *, alone: bool) -> Generator[None, None, tuple[Block, Sequence[int]]]:
        steps = self._window.pop(alone=alone)
        while True:
            try:
                _, job = next(steps)
            except StopIteration as end:
                block, shards, _ = end.value
                return block, shards
            if not job.done:
                job.listener = lambda: self._events.schedule(self._events.now, self._resume)  # type: ignore[attr-defined]  # a SimulatedJob of `Threads`
                yield


class _ShardReader:
    """What the prefetch window needs: the shards of samples, and the open ones of a process."""

    def __init__(self, reader: WeighedReader, threads: Threads) -> None:
        self.needs, self.weight = reader.needs, reader.weight
        self._opened = threads.opened

    def ensure(self, shard: int) -> int:
        return shard  # `Threads.submit` takes it from there

    def claim(self, shard: int) -> None:
        self._opened.add_references(shard, 1)

    def release(self, shard: int) -> None:
        self._opened.add_references(shard, -1)
