"""Pipeline: samples of archives in a fixed order, through stages, with a state that is exact."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from streamplug.config import whole_number
from streamplug.errors import ConfigError, StateError
from streamplug.types import World
from streamplug_webdataset.filters import Decoding
from streamplug_webdataset.fluent import Fluent
from streamplug_webdataset.iterable_dataset import IterableDataset
from streamplug_webdataset.source import ENDLESS, Archives, Order, Source
from streamplug_webdataset.stages import Batched, Each, LogKeys, Own, Shuffle, Slice, Stage
from streamplug_webdataset.tally import Place, Tally, parts_of


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pipeline is made of.

    Attributes:
        stream: Where the archives are.
        options: Further ones of `StreamingDataset`.
        mix: Over how many samples to mix; 1 for archives in random order, None for all as it lies.
        seed: Of that.
        batch: Samples of a step of one rank, if the user says.
        trusted: Whether values may be decoded that can run code.
        empty: Whether a data set without samples is an epoch without samples, rather than an error.
        epoch: Outputs of a loop, if the user says.
        passes: How often a loop reads the data set; 0 without end.
    """

    stream: Archives
    options: Mapping[str, Any]
    mix: int | None
    seed: int | None
    batch: int | None
    trusted: bool
    empty: bool
    epoch: int | None = None
    passes: int = 1


class Pipeline(Fluent, IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """A data set of archives and the stages that its samples go through; made by `WebDataset`."""

    def __init__(self, wish: Wish) -> None:
        """Open the archives."""
        self._wish = wish
        self._stages: tuple[Stage, ...] = ()
        self._length = None
        self._open(World().ranks, 0)
        if wish.passes != 1:
            self._open(self.dataset.session.place.ranks, self.dataset.size)

    @property
    def dataset(self) -> Source:
        """The `StreamingDataset` below, whose samples have their values as bytes."""
        return self._data

    def _open(self, ranks: int, size: int) -> None:
        """Take the archives up in the order that the stages want."""
        wish, self._limit = self._wish, 0
        batch = next((s.size for s in self._stages if isinstance(s, Batched)), wish.batch)
        if wish.batch not in (None, batch):
            raise ConfigError(
                f"batched({batch}) of a data set with batch_size={wish.batch}: leave batch_size= out"
            )
        each = self._samples_of_an_output()
        # Each loop that ends before this begins with a whole pass, and a whole batch.
        whole = math.lcm(max(size, 1), (batch or 1) * ranks)
        total, end = whole * max(ENDLESS // whole, 1), None
        if wish.epoch is not None and each:
            total = wish.epoch * each * ranks
            if total % ((batch or 1) * ranks):
                raise ConfigError(
                    f"with_epoch({wish.epoch}): no whole batches of batch_size={batch}"
                )
        elif wish.epoch is not None:
            self._limit = wish.epoch
        else:
            end = wish.passes * size or None
        plain = not size or (wish.epoch is None and wish.passes == 1)
        order = Order(wish.mix, wish.seed, batch, None if plain else total, None if plain else end)
        self._data = Source(wish.stream, order, wish.options)
        # Where the next loop begins, beyond what the data set says; and the loop that is under way.
        self._parts: list[Place] = []
        self._loaded: dict[str, Any] | None = None
        self._tally: Tally | None = None

    def _samples_of_an_output(self) -> int | None:
        """Return how many samples of the source make an output; None if that depends."""
        each = 1
        for stage in self._stages:
            if isinstance(stage, Batched) and each == 1:
                each = stage.size
            elif not stage.keeps:
                return None
        return each

    # -- what it is made of -----------------------------------------------------------

    def compose(self, *stages: Any) -> Pipeline:
        """Return a pipeline with more stages; see `Fluent.compose`."""
        made = copy.copy(self)
        for stage in stages:
            made._add(stage if isinstance(stage, Stage) else Own(stage))
        made._open(self._data.session.place.ranks, self._data.size)
        return made

    def _add(self, stage: Stage) -> None:
        if isinstance(stage, Shuffle):
            if stage.size < 1:
                return
            if all(isinstance(each, (Each, LogKeys)) for each in self._stages):
                seed = self._wish.seed if stage.seed is None else stage.seed
                self._wish = replace(self._wish, mix=stage.size, seed=seed)
                return
        if isinstance(stage, Decoding) and self._wish.trusted:
            stage = stage.trusting()
        self._stages += (stage,)

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Pipeline:
        """Return a pipeline with loops of so many outputs; see `Fluent.with_epoch`."""
        return self._wishing(epoch=outputs_of("with_epoch", nsamples, nbatches))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Pipeline:
        """Return a pipeline that reads the data set more than once; see `Fluent.repeat`."""
        if nbatches > 0:
            if nepochs > 0:
                raise ConfigError("repeat() takes a number of passes or one of outputs, not both")
            return self.with_epoch(nbatches)
        return self._wishing(epoch=None, passes=max(nepochs, 0))

    def _wishing(self, **changes: Any) -> Pipeline:
        made = copy.copy(self)
        made._wish = replace(self._wish, **changes)
        made._open(self._data.session.place.ranks, self._data.size)
        return made

    def with_batch_size(self, batch_size: int) -> Pipeline:
        """Return a pipeline whose worker processes take turns after so many samples.

        It makes batches that a plain `DataLoader` puts together the same for any number of workers.
        """
        return self._wishing(batch=batch_size)

    def with_length(self, n: int, silent: bool = False) -> Pipeline:
        """Return a pipeline whose ``len()`` is `n`; see `Fluent.with_length`."""
        made = self._wishing()
        made._length = checked_length(n, self._known_length(), silent=silent)
        return made

    def _known_length(self) -> int | None:
        each, batch = self._samples_of_an_output(), self._data.session.batch
        if not each or self._data.session.place.ranks > 1:
            return None if not each else len(self._data) // each
        total = self._wish.epoch or max(self._wish.passes, 0) * self._data.size
        if self._wish.epoch:
            return total
        last = next((s for s in self._stages if isinstance(s, Batched)), None)
        short = last is not None and not last.partial
        return (total // batch if short else -(-total // each)) or None

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield this process's outputs of the next loop."""
        if not self._data.size and self._wish.empty:
            return
        place = self._data.session.place
        begin, self._parts = self._part(place), []
        tally = self._tally = Tally(begin)
        outputs: Iterator[Any] = self._data.samples(tally)
        for at, stage in enumerate(self._all_stages(place)):
            outputs = stage.run(outputs, tally, at)
        for number, output in enumerate(outputs, 1):
            tally.moved()
            if number > begin.after:
                tally.made += 1
                yield output
        if tally.epoch is None:  # there was nothing left of it to be read
            tally.epoch, tally.first = self._data.session.begin_epoch()
        tally.done = True
        self._check_epoch(tally, begin, place)

    def _all_stages(self, place: World) -> Sequence[Stage]:
        if not self._limit:
            return self._stages
        share, rest = divmod(self._limit, place.workers_per_rank)
        return (*self._stages, Slice(share + (place.worker < rest)))

    def _part(self, place: World) -> Place:
        """Return where this process goes on."""
        if not self._parts:
            return Place()
        if len(self._parts) != place.workers_per_rank:
            raise StateError(
                f"the state is of {len(self._parts)} processes in the middle of batches of their own, and "
                f"there are {place.workers_per_rank}: take as many workers until the epoch ends"
            )
        return self._parts[place.worker]

    def _check_epoch(self, tally: Tally, begin: Place, place: World) -> None:
        """Refuse a nominal epoch that stages have made shorter."""
        if self._wish.epoch is None or self._limit or begin != Place():
            return
        steps = range(tally.first + place.worker, self._wish.epoch, place.workers_per_rank)
        one = self._data.session.batch == (self._samples_of_an_output() or 0)
        if one and tally.made < len(steps):
            raise ConfigError(
                f"with_epoch({self._wish.epoch}): map() left {len(steps) - tally.made} samples out; use "
                "select() for that, which is reckoned with"
            )

    # -- state ------------------------------------------------------------------------

    @property
    def tally(self) -> Tally:
        """How far the loop in this process has come."""
        return self._tally or Tally(Place())

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop in this process stands, as plain JSON values, after its last output.

        Raises:
            StateError: If loader workers have read; ask `WebLoader`.
        """
        tally = self._tally
        if tally is None:
            try:
                self._data.state_dict()
            except StateError:
                raise StateError(
                    "the data set was read by loader workers, which are ahead of the training loop; ask "
                    "WebLoader.state_dict()"
                ) from None
        if tally is None or tally.epoch is None:
            return self._loaded or self._data.session.next_state()
        if tally.done:
            return self._data.session.state_at(tally.epoch + 1, 0)
        return self.state_of(tally.epoch, tally.first, [tally.place], [tally.place], 0)

    def state_of(
        self, epoch: int, first: int, now: list[Place], before: list[Place], given: int
    ) -> dict[str, Any]:
        """Return the state of a loop.

        Args:
            epoch: Of the data set.
            first: The step that the loop began with.
            now: Where each process is; none if outputs at rest are not these.
            before: Where each was when all had made as many outputs.
            given: How many have handed out one more.
        """
        batch, workers = self._data.session.batch, len(before)
        if now and all(place.plain and place.used % batch == 0 for place in now):
            done = [place.used // batch for place in now]
            whole, rest = divmod(sum(done), workers)
            if done == [whole + (worker < rest) for worker in range(workers)]:
                return self._data.session.state_at(epoch, first + sum(done))
        least = min(place.used // batch for place in before)
        parts = [replace(place, used=place.used - least * batch) for place in before]
        return {
            **self._data.session.state_at(epoch, first + least * workers),
            "stages": [stage.name for stage in self._stages],
            "rank": [self._data.session.place.rank, self._data.session.place.ranks],
            "parts": [part.saved() for part in parts],
            "given": given,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loop stood.

        Args:
            saved: What `state_dict` returned there. One that was taken between the batches of the data set
                is good for any number of ranks and workers, as those of a `StreamingDataset`; one from
                the middle of batches for as many.

        Raises:
            StateError: If it was saved by a run whose order or stages differ.
        """
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        parts = parts_of(saved)
        rank = [self._data.session.place.rank, self._data.session.place.ranks]
        if parts and saved.get("rank") != rank:
            raise StateError(
                f"the state is of rank {saved.get('rank')}, in the middle of its batches, and this is {rank}"
                " (rank, ranks): each rank goes on with its own; a state at the end of an epoch serves all"
            )
        names = [stage.name for stage in self._stages]
        if parts and saved.get("stages") != names:
            raise StateError(f"the state is of stages {saved.get('stages')}, these are {names}")
        own = ("stages", "rank", "parts", "given")
        self._data.load_state_dict({k: v for k, v in saved.items() if k not in own})
        self._parts, self._loaded, self._tally = parts, dict(saved), None

    def __getstate__(self) -> dict[str, Any]:
        # The data set goes beside, so that torch shares what its workers have in common.
        rest = {k: v for k, v in self.__dict__.items() if k not in ("_data", "_tally")}
        return {"data": self._data, "rest": cloudpickle.dumps(rest)}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(cloudpickle.loads(saved["rest"]))
        self._data, self._tally = saved["data"], None


def outputs_of(what: str, nsamples: int, nbatches: int) -> int:
    """Return the number of outputs that a user asks for.

    Raises:
        ConfigError: If it is none.
    """
    count: int = whole_number(what, max(nsamples, nbatches), 1)
    return count


def checked_length(n: int, known: int | None, *, silent: bool) -> int:
    """Return the length that a user asks for, with a warning if another is known.

    Raises:
        ConfigError: If it is no length.
    """
    n = whole_number("with_length", n, 0)
    if known not in (None, n) and not silent:
        warnings.warn(f"with_length({n}): a loop has {known} outputs", stacklevel=3)
    return n
