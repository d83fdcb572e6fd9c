"""Pipelines of archives: samples in a planned order, through stages, with an exact state."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from streamplug.adapters import RankRecords, check_division, join_records, last_position
from streamplug.config import whole_number
from streamplug.errors import ConfigError, StateError
from streamplug.types import World
from streamplug_webdataset.decoding import Decoding
from streamplug_webdataset.fluent import Fluent, checked_length, number_of_outputs
from streamplug_webdataset.iterable_dataset import IterableDataset
from streamplug_webdataset.progress import PipelinePosition, Progress, RankPosition, SavedPosition
from streamplug_webdataset.source import ENDLESS, ArchiveDataset, Archives, SourceOrder
from streamplug_webdataset.stages import (
    Batched,
    Limit,
    LogKeys,
    MapStage,
    Shuffle,
    Slice,
    Stage,
    as_stage,
)


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Options of a pipeline.

    Attributes:
        stream: The archives.
        options: Further options of `StreamingDataset`.
        shuffle_block: Shuffle block size in samples; 1 shuffles only archives, None does not shuffle.
        seed: Shuffle seed.
        batch: Samples per step of a rank, if the user sets it.
        trusted: Whether values that can run code may be decoded.
        empty: Whether a data set without samples is an empty epoch, rather than an error.
        epoch: Outputs of a loop, if the user sets it.
        passes: Passes over the data set in a loop; 0 is unlimited.
    """

    stream: Archives
    options: Mapping[str, Any]
    shuffle_block: int | None
    seed: int | None
    batch: int | None
    trusted: bool
    empty: bool
    epoch: int | None = None
    passes: int = 1


class Pipeline(Fluent, IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """Archives and the stages that process their samples; `WebDataset` creates it."""

    def __init__(self, options: PipelineOptions, stages: Sequence[Stage] = ()) -> None:
        """Open the archives."""
        self._options = options
        self._stages: tuple[Stage, ...] = tuple(stages)
        self._length = None
        self._open(World().ranks, 0)
        if options.passes != 1:
            self.reset()

    @property
    def dataset(self) -> ArchiveDataset:
        """The underlying `StreamingDataset`, whose samples have bytes as values."""
        return self._data

    def reset(self) -> None:
        """Open the archives in the order that options and stages require; the next loop starts anew."""
        self._open(self._data.session.process.ranks, self._data.size)

    def _open(self, ranks: int, size: int) -> None:
        options, self._limit = self._options, 0
        batch = next((s.size for s in self._stages if isinstance(s, Batched)), options.batch)
        if options.batch not in (None, batch):
            raise ConfigError(
                f"batched({batch}) of a data set with batch_size={options.batch}: leave batch_size= out"
            )
        samples_per_output = self._samples_per_output()
        # Each loop that ends before this starts with a whole pass, and a whole batch.
        whole = math.lcm(max(size, 1), (batch or 1) * ranks)
        total, end = whole * max(ENDLESS // whole, 1), None
        if options.epoch is not None and samples_per_output:
            total = options.epoch * samples_per_output * ranks
            if total % ((batch or 1) * ranks):
                raise ConfigError(
                    f"with_epoch({options.epoch}): no whole batches of batch_size={batch}"
                )
        elif options.epoch is not None:
            self._limit = options.epoch
        elif options.passes > 1 and any(isinstance(stage, Slice) for stage in self._stages):
            raise ConfigError("slice() counts over all passes: FluidWrapper(….slice(…)).repeat(…)")
        else:
            end = options.passes * size or None
        one_pass = not size or (options.epoch is None and options.passes == 1)
        order = SourceOrder(
            options.shuffle_block,
            options.seed,
            batch,
            None if one_pass else total,
            None if one_pass else end,
        )
        self._data = ArchiveDataset(options.stream, order, options.options)
        # Where the next loop starts, in addition to the state of the data set.
        self._start_positions: list[PipelinePosition] = []
        self._loaded: dict[str, Any] | None = None  # state before the first sample of a loop
        self._progress: Progress | None = None  # of the loop that yielded last
        self._begin_records()

    def _begin_records(self) -> None:
        names = [stage.name for stage in self._stages]
        self._records = RankRecords(f"outputs of {names}")
        self._counts = True  # whether the outputs of the loop count samples

    def _samples_per_output(self) -> int | None:
        """Return how many samples of the source make one output; None if it varies."""
        samples = 1
        for stage in self._stages:
            if isinstance(stage, Batched) and samples == 1:
                samples = stage.size
            elif not stage.keeps:
                return None
        return samples

    @property
    def options(self) -> PipelineOptions:
        """Options of this pipeline."""
        return self._options

    # -- composition ------------------------------------------------------------------

    def compose(self, *stages: Any) -> Pipeline:
        """Return a pipeline with more stages; see `Fluent.compose`."""
        options, composed = self._options, list(self._stages)
        for added in stages:
            stage = as_stage(added, has_state=True)
            if isinstance(stage, Shuffle) and stage.size < 1:
                continue
            if isinstance(stage, Shuffle) and _are_planned(composed):
                seed = options.seed if stage.seed is None else stage.seed
                options = replace(options, shuffle_block=stage.size, seed=seed)
                continue
            if isinstance(stage, Decoding) and options.trusted:
                composed.append(stage.trusting())
            elif isinstance(stage, Shuffle):
                composed.append(stage.with_default_seed(options.seed))
            else:
                composed.append(stage)
        return self.changed(_options=options, _stages=tuple(composed))

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Pipeline:
        """Return a pipeline with a fixed number of outputs per loop; see `Fluent.with_epoch`."""
        return self._with_options(epoch=number_of_outputs("with_epoch", nsamples, nbatches))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Pipeline:
        """Return a pipeline that reads the data set several times; see `Fluent.repeat`."""
        nepochs, nbatches = (whole_number("repeat", n, -1) for n in (nepochs, nbatches))
        if nbatches > 0:
            if nepochs > 0:
                raise ConfigError("repeat() takes a number of passes or one of outputs, not both")
            return self.with_epoch(nbatches)
        return self._with_options(epoch=None, passes=max(nepochs, 0))

    def with_batch_size(self, batch_size: int) -> Pipeline:
        """Return a pipeline whose worker processes take turns after `batch_size` samples.

        A plain `DataLoader` then makes the same batches with any number of workers.
        """
        return self._with_options(batch=batch_size)

    def with_length(self, n: int, silent: bool = False) -> Pipeline:
        """Return a pipeline whose ``len()`` is `n`; see `Fluent.with_length`."""
        return self.changed(_length=checked_length(n, self.known_length(), silent=silent))

    def _with_options(self, **changes: Any) -> Pipeline:
        return self.changed(_options=replace(self._options, **changes))

    def known_length(self) -> int | None:
        """Return the number of outputs of a loop, or None if it is unknown."""
        if self._options.epoch is not None:
            return self._options.epoch
        samples, batch = self._samples_per_output(), self._data.session.batch
        if not samples:
            return None
        ranks = self._data.session.process.ranks
        if ranks > 1 and self._options.passes == 1:
            return len(self._data) // samples
        total = max(self._options.passes, 0) * self._data.size
        if ranks > 1:  # each takes as many batches, the last of which is padded
            total = -(-total // (batch * ranks)) * batch
        batched = next((s for s in self._stages if isinstance(s, Batched)), None)
        drops_last = batched is not None and not batched.partial
        return (total // batch if drops_last else -(-total // samples)) or None

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield this process's outputs of the next loop."""
        yield from self.publishing(self.outputs(), lambda: self._position(self.progress))

    def publishing(
        self,
        outputs: Generator[Any, None, None],
        position: Callable[[], RankPosition],
        loader_stages: Sequence[Stage] = (),
    ) -> Iterator[Any]:
        """Yield the outputs of a loop, and tell other ranks after each at which position this one is."""
        records = self._records
        self._counts = all(stage.counts for stage in (*self._stages, *loader_stages))
        publishes = not self._counts and records.connect(self._data.session)
        with closing(outputs):
            for output in outputs:
                if publishes:
                    records.publish(position().to_json())
                yield output
        if publishes:
            records.publish_end(position().to_json())

    def outputs(self) -> Generator[Any, None, None]:
        """Yield what iterating yields, and tell no other ranks, as those of a loader that reads it."""
        if not self._data.size and self._options.empty:
            return
        process = self._data.session.process
        start = self.start_positions(process.workers_per_rank)[process.worker]
        if self._progress is not None or self._loaded is None:
            self._loaded = self.next_state()
        self.mark_started()
        self._data.session.own_counters()
        run, num_jumps = self._data.session.run, self._data.session.run.num_jumps
        progress = self._progress = Progress(start)
        outputs: Iterator[Any] = self._data.samples(progress)
        for number, stage in enumerate(self._stages_of(process)):
            outputs = stage.run(outputs, progress, number)
        for output in outputs:
            run.check_jumps(num_jumps)
            if progress.count_output():
                self._progress = progress  # another loop may have yielded since
                yield output
        if progress.epoch is None:  # a stage has ended the loop before it read a sample
            session = self._data.session
            part = session.skip()
            progress.epoch, progress.first = part.epoch, session.step_of(part.start)
        self._progress, progress.done = progress, True
        self._check_epoch(progress, start, process)

    def _stages_of(self, process: World) -> Sequence[Stage]:
        if not self._limit:
            return self._stages
        share, rest = divmod(self._limit, process.workers_per_rank)
        return (*self._stages, Limit(share + (process.worker < rest)))

    def start_positions(self, workers: int) -> list[PipelinePosition]:
        """Return where each loader worker of this rank starts the next loop.

        Raises:
            StateError: If the loaded state is of another number of workers.
        """
        positions = self._start_positions or [PipelinePosition()] * workers
        if len(positions) != workers:
            raise StateError(
                f"the state is of {len(positions)} processes in the middle of batches of their own, and "
                f"there are {workers}: take as many workers until the epoch ends"
            )
        return positions

    def mark_started(self) -> None:
        """Note that the loop has started, here or in workers; the next one starts at its beginning."""
        self._start_positions = []

    def _check_epoch(self, progress: Progress, start: PipelinePosition, process: World) -> None:
        """Check that stages have not shortened an epoch of fixed length."""
        epoch = self._options.epoch
        if epoch is None or self._limit or start != PipelinePosition():
            return
        steps = range(progress.first + process.worker, epoch, process.workers_per_rank)
        one_output_per_step = self._data.session.batch == (self._samples_per_output() or 0)
        if one_output_per_step and progress.made < len(steps):
            raise ConfigError(
                f"with_epoch({epoch}): map() left {len(steps) - progress.made} samples out; use select() "
                "for that, which is reckoned with"
            )

    def set_epoch(self, epoch: int) -> None:
        """Check who reads the pipeline, as loaders of Accelerate call this; loops count their epochs anyway.

        Raises:
            ConfigError: If Accelerate divides among ranks what the pipeline has divided already.
        """
        check_division(self._data)

    # -- state ------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """Progress of the loop in this process."""
        return self._progress or Progress(PipelinePosition())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loop in this process after its last output, as integers and texts.

        In a process group of torch it is the same on all ranks, and each may ask for it alone.

        Raises:
            StateError: If loader workers have read; ask `WebLoader`. Or if another rank does not reach this
                output, or is far ahead of it.
        """
        progress = self._progress
        if progress is None:
            try:
                self._data.state_dict()
            except StateError:
                raise StateError(
                    "the data set was read by loader workers, which are ahead of the training loop; ask "
                    "WebLoader.state_dict()"
                ) from None
        if progress is None or progress.epoch is None:
            return self._loaded or self.next_state()
        self._data.session.run.warn_about_others()
        if progress.done:
            return self.next_state(progress.epoch + 1, 0)
        return self.state_of(self._position(progress), None)

    def _position(self, progress: Progress) -> RankPosition:
        """Return the position of this process, which is all of its rank."""
        position, batch = progress.position, self._data.session.batch
        if position.at_rest and position.used % batch == 0:
            return RankPosition(progress.epoch or 0, progress.first + position.used // batch)
        return self.position_of(progress.epoch or 0, progress.first, [position], [position], 0)

    def position_of(
        self,
        epoch: int,
        first: int,
        positions: list[PipelinePosition],
        even_positions: list[PipelinePosition],
        extra_outputs: int,
        *,
        turn: int = 0,
    ) -> RankPosition:
        """Return the position of this rank in a loop.

        Args:
            epoch: Epoch of the data set.
            first: Step at which the loop began.
            positions: Position of each process.
            even_positions: Position of each process when all had made the same number of outputs.
            extra_outputs: Number of processes that have made one output since then.
            turn: Number of the process whose turn is next.
        """
        workers, batch = len(even_positions), self._data.session.batch
        if positions and all(p.at_rest and p.used % batch == 0 for p in positions):
            steps = [position.used // batch for position in positions]
            whole, rest = divmod(sum(steps), workers)
            # Any number of processes may go on if that of the next step is the one whose turn is next.
            if rest == turn and steps == [whole + (worker < rest) for worker in range(workers)]:
                return RankPosition(epoch, first + sum(steps))
        common = min(position.used // batch for position in even_positions)
        parts = [replace(p, used=p.used - common * batch) for p in even_positions]
        return RankPosition(epoch, first + common * workers, parts, extra_outputs)

    def state_of(self, position: RankPosition, loader_stages: list[str] | None) -> dict[str, Any]:
        """Return the state of all ranks after an output after which this one has a position.

        Raises:
            StateError: If another rank does not reach this output, or is far ahead of it.
        """
        session, record = self._data.session, position.to_json()
        ranks = session.world.ranks
        if self._counts:
            records = dict.fromkeys(range(ranks), record)
        else:
            records = self._records.collect(session, record)
        state = self.next_state(*last_position(records))
        if position.at_rest and len(set(records.values())) == 1:
            return state
        names = [stage.name for stage in self._stages]
        fields = {"stages": names, "loader_stages": loader_stages, "num_ranks": ranks}
        return {**state, "pipeline": join_records(fields, records)}

    def next_state(self, *position: int) -> dict[str, Any]:
        """Return the state before a step of an epoch, or before the next loop."""
        session = self._data.session
        state = session.state_at(*position) if position else session.next_state()
        return {**state, "pipeline": ""}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loop stopped.

        Args:
            saved: What `state_dict` returned. A state between the batches of the data set can be loaded with
                any number of ranks and workers, as that of a `StreamingDataset`; one in the middle of
                batches requires the same number, and a `WebLoader` if one saved it for several workers.

        Raises:
            StateError: If it was saved by a run whose order or stages differ.
        """
        state = self.check_state(saved)
        position = state.position
        if position is not None and (
            len(position.parts) > 1 or position.given or position.loader is not None
        ):
            raise StateError(
                "the state is in the middle of batches of a WebLoader, and a pipeline does not know which of "
                "them its workers have yielded: load it into a WebLoader over this pipeline"
            )
        self.go_to(state)

    def check_state(self, saved: Any) -> SavedPosition:
        """Return what is in a state; raise `StateError` if it is of other ranks or stages."""
        process, names = self._data.session.process, [stage.name for stage in self._stages]
        state = SavedPosition.parse(saved, process.rank, process.ranks)
        if state.position is not None and state.position.parts and state.stages != names:
            raise StateError(f"the state is of stages {state.stages}, these are {names}")
        return state

    def go_to(self, state: SavedPosition) -> None:
        """Continue after a state."""
        data, position = self._data, state.position
        data.load_state_dict(dict(state.order))
        if position is not None and data.session.next_step() != (position.epoch, position.step):
            data.load_state_dict(data.session.state_at(position.epoch, position.step))
        self._start_positions = [] if position is None else list(position.parts)
        self._loaded = state.to_state()
        self._progress = None
        self._begin_records()

    def __getstate__(self) -> dict[str, Any]:
        # The data set is separate, so that torch can share its memory among workers.
        own = ("_data", "_progress")
        rest = {k: v for k, v in self.__dict__.items() if k not in own}
        return {"data": self._data, "rest": cloudpickle.dumps(rest)}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(cloudpickle.loads(saved["rest"]))
        self._data, self._progress = saved["data"], None


def _are_planned(stages: Sequence[Stage]) -> bool:
    """Return whether the plan can shuffle samples before these stages instead of after them."""
    return all(isinstance(stage, (MapStage, LogKeys)) for stage in stages)
