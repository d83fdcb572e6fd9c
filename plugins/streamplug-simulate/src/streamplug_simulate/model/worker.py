"""Worker: one process that reads, as `streamplug.transfer.prefetch` does, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress

from streamplug.session.sample_source import Block
from streamplug.transfer.prefetch import Limits, Needs, Window
from streamplug_simulate.model.events import Events
from streamplug_simulate.model.node_cache import Node, Threads
from streamplug_simulate.model.planned_dataset import Weighed


class Worker:
    """One process that reads.

    Attributes:
        ended: Whether it has made its last batch.
    """

    def __init__(
        self,
        events: Events,
        node: Node,
        reader: Weighed,
        *,
        ahead: tuple[Iterator[Block], Limits],
        made: Callable[[int], None],
        permits: int,
    ) -> None:
        """Begin to read.

        Args:
            events: The clock.
            node: The machine.
            reader: Says what blocks need.
            ahead: The blocks, and how far ahead to fetch.
            made: Told the step of each batch that is ready, and -1 behind the last.
            permits: How many batches it may make before it is asked for more.
        """
        self._events, self._node, self._made = events, node, made
        blocks, limits = ahead
        threads = Threads(node, limits.active)
        needs: Needs[Block, int] = Needs(
            of=lambda block: reader.needs(block.ids),
            samples=lambda block: block.ids.size,
            bytes=reader.weight,
            ensure=lambda shard: shard,
            claim=lambda shard: threads.opened.keep(shard, 1),
            release=lambda shard: threads.opened.keep(shard, -1),
        )
        self._window = Window(blocks, needs, limits, threads)
        self._permits, self._asks, self.ended = permits, False, False
        self._steps = self._run()
        events.at(events.now, self._resume)

    def permit(self) -> None:
        """Let it make one more batch."""
        self._permits += 1
        if self._asks:
            self._asks = False
            self._events.at(self._events.now, self._resume)

    def _resume(self) -> None:
        with suppress(StopIteration):
            next(self._steps)

    def _run(self) -> Generator[None, None, None]:
        window, begun = self._window, False
        wanted: Sequence[int] = ()
        while True:
            yield from self._permitted()
            window.forget(wanted)
            if not window.look():
                self.ended = True
                self._made(-1)
                return
            block, wanted = yield from self._popped(alone=not begun)
            window.fill()
            begun = True
            for number, (step, _) in enumerate(block.batches()):
                if number:
                    yield from self._permitted()
                self._node.use(wanted)
                self._made(step)

    def _permitted(self) -> Generator[None, None, None]:
        if not self._permits:
            self._asks = True
            yield
        self._permits -= 1

    def _popped(self, *, alone: bool) -> Generator[None, None, tuple[Block, Sequence[int]]]:
        steps = self._window.pop(alone=alone)
        while True:
            try:
                job = next(steps)
            except StopIteration as end:
                block, wanted, _ = end.value
                return block, wanted
            if not job.done:
                job.listener = lambda: self._events.at(self._events.now, self._resume)  # type: ignore[attr-defined]  # a job of `Threads`
                yield
