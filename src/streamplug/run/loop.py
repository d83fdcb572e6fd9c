"""A pass over a data set from a position on, which it owns: what it has handed out, its end, its rewinds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Position
from streamplug.run.feed import Block
from streamplug.transfer import LoopClock
from streamplug.types import Int64, World

if TYPE_CHECKING:
    from streamplug.run.run import Run


class Part:
    """What a process reads for a loop that is advanced elsewhere, as a worker of a loader does.

    Attributes:
        epoch: Number of the epoch.
        start: Position from which it reads.
        number: Number of the loop, above 0, which no other loop of the rank has.
        num_steps: Number of steps that it has handed out.
        clock: Counts how long the user of the loop waits.
    """

    def __init__(self, start: Position, number: int, clock: LoopClock | None = None) -> None:
        self.epoch, self.start, self.number = start.epoch, start, number
        self.clock = clock or LoopClock()
        self.num_steps = 0
        self._block: Block | None = None
        self._noted: deque[Block] | None = None  # see `read_batches`

    @property
    def is_outdated(self) -> bool:
        """Whether the run has changed since, so that the loop has to follow."""
        return False

    @property
    def is_complete(self) -> bool:
        """Whether it is known that all steps were handed out."""
        return False

    def add(self, block: Block) -> None:
        """Take a block for the current one."""
        self._block = block
        if self._noted is not None:
            self._noted.append(block)

    def read_batches(self) -> Iterator[tuple[int, Int64]]:
        """Return an iterator over the step and the sample ids of each batch that is read from now on.

        It is for those whose batches may be read ahead of use, and ends when no further one was read.
        """
        self._noted = deque()
        return _take_batches(self._noted)

    def steps(self, block: Block) -> Iterator[tuple[int, slice]]:
        """Yield the step of each batch of a block, and the slice of its samples, until the run changes."""
        for place in block.batches():
            yield place
            if self.is_outdated:
                block.truncate()
                return

    def latest_batch(self) -> tuple[int, Int64] | None:
        """Return the step and the sample ids of the batch that is being handed out; None before the first."""
        return None if self._block is None else self._block.latest()

    def advance(self, step: int) -> None:  # noqa: ARG002 - for those that have a position
        """Note that the batch of a step is handed out, with its last sample."""
        self.num_steps += 1

    def end(self) -> None:
        """Note that all batches were handed out."""

    def follow(self) -> bool:
        """Return whether to read on from `start`, after a change of the run; else the loop is over."""
        return False


def _take_batches(blocks: deque[Block]) -> Iterator[tuple[int, Int64]]:
    while blocks:
        yield from blocks.popleft().ids_by_step()


class Loop(Part):
    """One pass over a data set; only the code that hands out its batches advances it.

    Attributes:
        position: After the batch that was handed out last.
        origin: Where it began; `start` is where it went on last.
        before: The loop that was advanced last when this one began; None after its first batch.
        is_running: Whether it may hand out more.
        reason: Why it ends before its next batch, unless it has handed out all; None if it goes on.
        is_ahead: Whether it is advanced elsewhere, and what reads for it may be ahead of that.
        trainer_epoch: Epoch of the trainer in which it was advanced last; None if it named none.
    """

    before: Loop | None = None
    reason: str | None = None

    def __init__(self, run: Run, start: Position, world: World, number: int) -> None:
        """Begin at a position, in the world of the rank."""
        super().__init__(start, number)
        self._run, self._version = run, run.version
        self._world = world
        self._planned: Epoch | None = None
        self.origin = self.position = start
        self.trainer_epoch = run.trainer_epoch
        self.is_running, self.is_ahead = True, False

    def _plan(self) -> Epoch:
        if self._planned is None:
            self._planned = self._run.epoch(self.epoch, self._world)
        return self._planned

    @property
    def step(self) -> int:
        """The next step."""
        return self._plan().step_at(self._world, self.position.done)

    @property
    def is_complete(self) -> bool:
        """Whether it has handed out all steps of its epoch."""
        return self.position.epoch > self.epoch or self.position.done >= self._plan().units.stop

    @property
    def is_outdated(self) -> bool:
        """Whether the run has changed since, so that the loop has to follow."""
        return self._version != self._run.version

    def advance(self, step: int) -> None:
        """Note that the batch of a step is handed out: the position is after it.

        Raises:
            ConfigError: If the run has changed in a way that this loop cannot follow.
        """
        run = self._run
        if self._version != run.version:
            self._check()
        self.position = Position(self.epoch, self._plan().done_before(self._world, step + 1))
        self.trainer_epoch = run.trainer_epoch
        self.num_steps += 1
        self.before = None
        self.lead()

    def lead(self) -> None:
        """Note that this is the loop that was advanced last, after which the next one begins."""
        if self._run.latest is not self:
            self._run.follow(self)

    def _check(self) -> None:
        if self.reason is not None:
            raise ended_error(self.reason)

    def follow(self) -> bool:
        """Return whether to read on from `start`, after a change of the run; else the loop is over.

        Raises:
            ConfigError: If the loop cannot, as another one did or a position was set.
        """
        if not self.is_outdated:
            return False
        self._check()
        self._version, self._planned = self._run.version, None
        self.start = self.position
        return True

    def end_by(self, reason: str) -> None:
        """Hand out nothing more, as the run has changed in a way that this loop cannot follow."""
        self.reason = reason
        self._run.end(self)

    def end(self) -> None:
        """Note that all batches were handed out.

        The next loop begins after this one, then, whatever was read between its last batch and its end.
        """
        self.position, self.is_ahead = Position(self.epoch + 1), False
        if self.reason is None:
            self.lead()
        self.close()

    def close(self) -> None:
        """Note that the loop was left."""
        self.is_running, self.before = False, None
        self._run.end(self)

    def undo(self) -> None:
        """Take back the start of the loop if it has handed out nothing."""
        if not self.num_steps:
            self._run.undo(self)

    def rewind(self, count: int) -> Position:
        """Return the position `count` global batches before.

        Raises:
            ConfigError: If the loop has not handed out as many of its epoch, or is within a batch.
        """
        plan, world = self._plan(), self._world
        count = whole_number("rewind", count, 0) or 0
        steps = count * plan.global_batch // plan.units_per_step(world)
        if steps > self.step:
            raise ConfigError(
                f"rewind={count}: the loop has yielded {plan.global_step(world, self.step)} batches of its "
                "epoch; rewind no more than these"
            )
        self.check_between_batches("resize()")
        if not steps:
            return self.position
        return Position(self.position.epoch, plan.done_before(world, self.step - steps))

    def check_between_batches(self, call: str) -> None:
        """Raise `ConfigError` if a batch is used in part when a call changes what comes next."""
        # It may have been checked already, or left.
        latest = None if self.is_outdated or not self.is_running else self.latest_batch()
        if latest is not None and latest[0] == self.step:
            raise ConfigError(
                f"{call} in the middle of the batch of step {latest[0]}: call it between two batches, after "
                "the last sample of one and before the first of the next"
            )

    def go_to(self, position: Position, world: World) -> None:
        """Go on at a position in another world."""
        self._world, self.position, self._planned = world, position, None


def ended_error(reason: str) -> ConfigError:
    """Return the error of a loop that cannot follow a change of its run."""
    return ConfigError(f"{reason}; leave the loop and start another")
