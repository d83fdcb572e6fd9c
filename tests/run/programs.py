"""Programs of loops over a data set, run beside a model that says what they mean.

Loops are left, nested and side by side, and fail to start; states are saved and loaded, also into other kinds
of loops and other worlds; worlds and proportions change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError, StorageError
from streamplug.plan import Position
from tests.mixing import HAS_MIXING
from tests.run.loops_model import END, ERROR, Change, Model, ModelLoop, Place

SIZES, GLOBAL_BATCH = (44, 31), 6
RANKS = (1, 2, 3, 6)
SHARES = ((0.5, 0.5), (0.9, 0.1), (0.0, 1.0), (0.2, 0.8))
NUMBERS = st.integers(0, 11)


class FailingRead:
    """Reads as a function does, but fails while there is a file, in any process."""

    def __init__(self, read: Callable[..., Any], flag: Path) -> None:
        self.read, self.flag = read, flag

    def __call__(self, *arguments: Any) -> Any:
        if self.flag.exists():
            raise StorageError("no answer")
        return self.read(*arguments)


class FailingReads:
    """Lets the reader of a data set fail while `flag` is there."""

    streams: Any

    @property
    def flag(self) -> Path:
        return Path(self.streams[0].local).parent / "failing"

    def make_reader(self, *arguments: Any) -> Any:
        reader = super().make_reader(*arguments)  # type: ignore[misc]
        for name in ("rows", "batches", "batch"):
            setattr(reader, name, FailingRead(getattr(reader, name), self.flag))
        return reader


class Data(FailingReads, StreamingDataset):
    """A data set whose reader fails on request."""


def write_streams(top: Path) -> list[str]:
    """Write two streams below a directory, and return theirs."""
    starts = (0, 100)
    for start, size in zip(starts, SIZES):
        with MDSWriter(columns={"n": "int"}, out=top / str(start), max_samples_per_shard=7) as out:
            out.write_batch({"n": np.arange(start, start + size)})
    return [str(top / str(start)) for start in starts]


class Kind:
    """A kind of data: how to open it, and its order as the model needs it."""

    shares: tuple[float, ...] | None = None
    depends_on_ranks = False
    ranks: tuple[int, ...] = RANKS

    def __init__(self, folders: list[str]) -> None:
        self.folders = folders
        self.units = lru_cache(None)(self._units)

    def options(self) -> dict[str, Any]:
        return {"local": self.folders[0]}

    def open(self, ranks: int = 1, rank: int = 0, cls: type = Data) -> Any:
        options = {"shuffle": True, "num_canonical_nodes": 2, "shuffle_block_size": 20}
        return cls(
            batch_size=self.batch_size(ranks),
            world=World(1, ranks, rank=rank),
            **{**options, **self.options()},
        )

    def batch_size(self, ranks: int) -> int | None:
        return GLOBAL_BATCH // ranks

    def step(self, ranks: int) -> int:
        return GLOBAL_BATCH

    def batch_of(self, units: list[Any]) -> list[Any]:
        """Return the samples of some units."""
        return units

    def can_resize(self, done: int) -> bool:
        return True

    def can_continue(self, done: int, ranks: int) -> bool:
        """Return whether a state of so many units can be loaded by so many ranks."""
        return True

    def _units(self, changes: tuple[Change, ...], epoch: int, ranks: int) -> list[Any]:
        """Return the units of an epoch: what is read from its start on, and from each change within it."""
        within = [n for n, ((at, done), _) in enumerate(changes) if at == epoch and done]
        before = [n for n, ((at, done), _) in enumerate(changes) if (at, done) <= (epoch, 0)]
        units = self._read(changes[: len(before)], (epoch, 0), ranks)
        for n in within:
            place = changes[n][0]
            units = units[: place[1]] + self._read(changes[: n + 1], place, ranks)
        return units

    def _read(self, changes: tuple[Change, ...], place: Place, ranks: int) -> list[Any]:
        if not self.depends_on_ranks:  # a rank has every n-th unit of a step
            ranks = 1
        parts = [self._read_rank(changes, place, ranks, rank) for rank in range(ranks)]
        units = [unit for units in zip(*parts) for unit in units]
        if ranks > 1:
            self.compare(units, self._read(changes, place, 1))
        return units

    def compare(self, units: list[Any], others: list[Any]) -> None:
        """Check that global batches are the same for other ranks."""
        steps = range(0, len(others), GLOBAL_BATCH)
        pairs = [(units[n : n + GLOBAL_BATCH], others[n : n + GLOBAL_BATCH]) for n in steps]
        assert len(units) == len(others)
        assert all(sorted(one) == sorted(other) for one, other in pairs)

    def _read_rank(
        self, changes: tuple[Change, ...], place: Place, ranks: int, rank: int
    ) -> list[Any]:
        data = self.open()
        for at, proportions in changes:
            data.load_state_dict(self.state(data, at))
            data.set_proportions(proportions)
        saved = self.state(data, place)
        data = self.open(ranks, rank)
        data.load_state_dict(saved)
        return self.units_of([batch["n"].tolist() for batch in data.batches()])

    def units_of(self, batches: list[list[int]]) -> list[Any]:
        return list(chain(*batches))

    def state(self, data: Any, place: Place) -> dict[str, Any]:
        return data.session.run.state_at(data.session.world, Position(*place))


class Mixed(Kind):
    shares = SHARES[0]
    depends_on_ranks = True

    def options(self) -> dict[str, Any]:
        pairs = zip(self.folders, SHARES[0])
        return {"streams": [Stream(local=folder, proportion=share) for folder, share in pairs]}


class Planned(Mixed):
    def options(self) -> dict[str, Any]:
        return {
            "streams": [Stream(local=folder) for folder in self.folders],
            "curriculum": {0: list(SHARES[0]), 5: list(SHARES[3]), 20: list(SHARES[1])},
            "batching_method": "stratified",
        }


class Loops:
    """Loops over a data set: how to start one, and what else can be done."""

    data_class: type = Data
    follows = resizes = fails = warns = follows_trainer = True

    def __init__(self, data: Any) -> None:
        self.data = self.target = data

    def start(self) -> Iterator[Any]:
        return self.data.batches()

    def next(self, loop: Any) -> list[int] | None:
        batch = next(loop, None)
        return None if batch is None else np.asarray(batch["n"]).tolist()

    def place(self, loop: Any) -> Place | None:
        return None


class Threaded(Loops):
    def start(self) -> Iterator[Any]:
        return self.data.batches(num_threads=2)


class Samples(Loops):
    def start(self) -> Iterator[Any]:
        return iter(self.data)

    def next(self, loop: Any) -> list[int] | None:
        return [int(sample["n"]) for sample in islice(loop, self.data.batch_size)] or None


def place_of(saved: dict[str, Any]) -> Place:
    """Return the place of a state."""
    key = "batch_in_epoch" if "batch_in_epoch" in saved else "sample_in_epoch"
    return saved["epoch"], saved[key]


class Program:
    """What runs a program beside the model, and compares both after each of its steps."""

    def __init__(self, kind: Kind, loops: dict[str, type[Loops]], name: str) -> None:
        self.kind, self.choices = kind, loops
        self.states: list[tuple[dict[str, Any], Place, tuple[Change, ...], int | None]] = []
        self.warnings: list[str] = []
        self.model = Model(kind.units, kind.step)
        self.running: list[tuple[Any, ModelLoop]] = []
        self._open(name, 1, 0)
        self.save()

    def _open(self, name: str, ranks: int, rank: int) -> None:
        self.running = []
        loops = self.choices[name]
        self.loops = loops(self.kind.open(ranks, rank, loops.data_class))
        self.model = Model(self.kind.units, self.kind.step, self.loops.follows, ranks, rank)

    def run(self, steps: list[tuple[str, int, int]]) -> None:
        handler, logger = logging.Handler(), logging.getLogger("streamplug")
        handler.emit = lambda record: self.warnings.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        try:
            for name, a, b in steps:
                getattr(self, name)(a, b)
                self.check()
            self.end()
        finally:
            logger.removeHandler(handler)

    def end(self) -> None:
        """Leave all loops."""
        while self.running:
            self.leave(0, 0)

    def state(self) -> dict[str, Any]:
        """Return the state, of which the place is compared, and whether it warned."""
        self.warnings.clear()
        saved: dict[str, Any] = self.loops.target.state_dict()
        assert place_of(saved) == self.model.place()
        warned = [text for text in self.warnings if "is of the loop that was advanced last" in text]
        assert len(warned) == (self.loops.warns and self.model.warns())
        return saved

    def check(self) -> None:
        self.state()
        for loop, expected in self.running:
            place = self.loops.place(loop)
            if place is not None and expected.status != "new":
                assert place == expected.place

    # -- steps of programs -----------------------------------------------------------

    def start(self, *_: int) -> None:
        self.running.append((self.loops.start(), self.model.begin()))

    def next(self, which: int, count: int = 0) -> None:
        if not self.running:
            self.start()
        for _ in range(1 + count // 4):
            self._next(*self.running[which % len(self.running)])

    def _next(self, loop: Any, expected: ModelLoop) -> bool:
        batch = self.model.next(expected)
        if batch == ERROR:
            with pytest.raises(ConfigError, match="leave the loop and start another"):
                self.loops.next(loop)
        else:
            assert self.loops.next(loop) == (None if batch == END else self.kind.batch_of(batch))
        return batch not in (END, ERROR)

    def finish(self, which: int, _: int) -> None:
        if self.running:
            while self._next(*self.running[which % len(self.running)]):
                pass

    def side_by_side(self, which: int, count: int) -> None:
        """Advance two loops by turns, as `zip` does."""
        self.start()
        pairs = self.running[which % len(self.running)], self.running[-1]
        while count and all(self._next(*pair) for pair in pairs):
            count -= 1

    def leave(self, which: int, _: int) -> None:
        if self.running:
            loop, expected = self.running.pop(which % len(self.running))
            loop.close()
            self.model.leave(expected)

    def fail(self, *_: int) -> None:
        """Start a loop that fails before its first batch, unless it has none."""
        place = self.model.next_place()
        if not self.loops.fails or place[1] >= len(
            self.kind.units(self.model.changes, place[0], self.model.ranks)
        ):
            return
        self.loops.data.flag.touch()
        try:
            with pytest.raises(StorageError):
                self.loops.next(self.loops.start())
        finally:
            self.loops.data.flag.unlink()

    def save(self, *_: int) -> None:
        place = self.model.place()
        trainer = self.model.place_trainer() if place[1] else None
        self.states.append((self.state(), place, self.model.known(), trainer))

    def load(self, which: int, _: int) -> None:
        saved, *expected = self.states[which % len(self.states)]
        self.loops.target.load_state_dict(saved)
        self.model.load(*expected)

    def move(self, which: int, how: int) -> None:
        """Go on with a state in another data set, with other loops in another world."""
        ranks = self.kind.ranks[how % len(self.kind.ranks)]
        saved, place, *_ = self.states[which % len(self.states)]
        if not self.kind.can_continue(place[1], ranks):
            with pytest.raises(StateError, match="inside a step"):
                self.kind.open(ranks, which % ranks, Data).load_state_dict(saved)
            return
        self.end()
        name = list(self.choices)[(which + how) % len(self.choices)]
        self._open(name, ranks, which % ranks)
        self.load(which, 0)

    def resize(self, which: int, back: int) -> None:
        ranks = RANKS[which % len(RANKS)]
        place = self.model.place()
        if not self.loops.resizes or not self.kind.can_resize(place[1]):
            return
        world, rewind = World(1, ranks, rank=back % ranks), back // 4
        if (place[1] if self.model.latest else 0) < rewind * GLOBAL_BATCH:
            with pytest.raises(ConfigError, match="rewind"):
                self.loops.target.resize(world, rewind=rewind)
            return
        self.loops.target.resize(world, rewind=rewind)
        self.model.resize(ranks, world.rank, rewind * GLOBAL_BATCH)

    def mix(self, which: int, _: int) -> None:
        if self.kind.shares and HAS_MIXING:
            shares = SHARES[which % len(SHARES)]
            self.loops.data.set_proportions(shares)
            self.model.set_proportions(shares)

    def set_epoch(self, epoch: int, _: int) -> None:
        if hasattr(self.loops.target, "set_epoch"):
            self.loops.target.set_epoch(epoch // 2)
            if self.loops.follows_trainer:
                self.model.set_epoch(epoch // 2)


class WithWorkers(Program):
    """A program whose workers read ahead, so that loops that run would fail, too."""

    def fail(self, *_: int) -> None:
        if not any(expected.status == "running" for _, expected in self.running):
            super().fail()


KINDS: dict[str, type[Kind]] = {"one": Kind, "mixed": Mixed}
if HAS_MIXING:
    KINDS["planned"] = Planned

STEPS = [
    *("start", "next", "next", "next", "finish", "side_by_side", "leave", "fail"),
    *("save", "load", "move", "resize", "mix", "set_epoch"),
]
PROGRAM = st.lists(st.tuples(st.sampled_from(STEPS), NUMBERS, NUMBERS), max_size=30)


def programs(few: int, many: int) -> Callable[[Any], Any]:
    """Decorate a test of random programs: so many are run, or `many` of them in a campaign."""
    is_campaign = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
    limit = pytest.mark.timeout(3 * 3600 if is_campaign else 300)
    return lambda test: limit(settings(max_examples=many if is_campaign else few)(test))
