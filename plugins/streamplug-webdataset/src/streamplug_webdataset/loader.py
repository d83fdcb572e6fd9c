"""Loader of pipelines, to which stages can be added, and whose state is exact."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, cast

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from streamplug.adapters import Assignment, WorkerPool
from streamplug.errors import ConfigError, StateError
from streamplug.run import Loop, Part, Session, closed_at_exit
from streamplug.transfer import HANDOVER, TRANSFORM
from streamplug_webdataset.fluent import Fluent, checked_length, number_of_outputs
from streamplug_webdataset.iterable import IterablePipeline
from streamplug_webdataset.pipeline import Pipeline
from streamplug_webdataset.progress import PipelinePosition, Progress, RankPosition
from streamplug_webdataset.stages import Batched, Limit, Shuffle, Slice, Stage, as_stage


class WebLoader(Fluent):
    """Runs a pipeline in worker processes; further stages run in this process, on the outputs of workers.

    Args:
        dataset: A pipeline, such as a `WebDataset`.
        batch_size: Outputs of the pipeline per batch; None takes them one by one, as for a pipeline that
            ends with `batched`, and makes tensors of their arrays. After `with_epoch` of the pipeline, its
            outputs are whole batches, whose number is rounded up, or down with `drop_last`.
        collate_fn: Makes a batch of a list of outputs; without `batch_size`, applied to each output. None is
            that of torch.
        drop_last: Whether a short last batch of each worker is left out.
        **kwargs: Further arguments of `torch.utils.data.DataLoader`, such as `num_workers`.

    Raises:
        ConfigError: If `dataset` is not a pipeline, or an argument would change the order.
    """

    def __new__(cls, dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return a loader; it has no state if `dataset` is not a pipeline of archives."""
        # Copies are made without arguments.
        if cls is not WebLoader or _has_plan(dataset) or not isinstance(dataset, IterableDataset):
            return super().__new__(cls)
        return IterablePipeline(DataLoader(dataset, *args, **kwargs))

    def __init__(
        self,
        dataset: Pipeline,
        batch_size: int | None = 1,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        **kwargs: Any,
    ) -> None:
        if not _has_plan(dataset):
            raise ConfigError(
                f"WebLoader loads a pipeline of this package, not {dataset!r:.80}; use torch's DataLoader"
            )
        if kwargs.get("shuffle") or kwargs.get("sampler") or kwargs.get("batch_sampler"):
            raise ConfigError("shuffle=, sampler=: the pipeline says the order; see its shuffle()")
        if not kwargs.get("in_order", True):
            raise ConfigError("in_order=False: a state says how many outputs were used, in order")
        if collate_fn is not None and not callable(collate_fn):
            raise ConfigError(f"collate_fn={collate_fn!r:.60}: expected a function of outputs")
        if batch_size is None and drop_last:
            raise ConfigError("drop_last= needs a batch_size")
        if batch_size is not None:
            collate = collate_fn or default_collate
            stage = Batched("batches of the loader", batch_size, collate, partial=not drop_last)
            outputs, dataset = dataset.options.epoch, dataset.compose(stage)
            if outputs is not None:  # it counts outputs of the pipeline, not batches
                rounding = 0 if drop_last else stage.size - 1
                dataset = dataset.with_epoch((outputs + rounding) // stage.size)
        kwargs.pop("shuffle", None)
        self._inner, self._kwargs = dataset, kwargs
        # As torch does where it makes no batches.
        self._convert = (collate_fn or default_convert) if batch_size is None else _identity
        self._stages: tuple[Stage, ...] = ()
        self._epoch: int | None = None
        self._length = None
        self.reset()

    def reset(self) -> None:
        """Prepare the pipeline for the options and stages; the next loop starts anew."""
        self._pipeline, self._limit = self._inner, 0
        if self._epoch is not None and not self._stages:
            self._pipeline = self._inner.with_epoch(self._epoch)
        elif self._epoch is not None:
            self._pipeline, self._limit = self._inner.repeat(), self._epoch
        else:
            self._pipeline = self._inner.compose()
        self._pool: WorkerPool | None = None  # persistent workers that wait for a loop
        # Where the next loop starts, in addition to the state of the pipeline.
        self._skipped_outputs, self._start = 0, PipelinePosition()
        self._loaded: dict[str, Any] | None = None  # state before the first output of a loop
        # Of the loop that yielded last, and of the one that was started last.
        self._progress = self._latest = cast("Progress | None", None)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the workers run."""
        return self._pipeline

    # -- composition ------------------------------------------------------------------

    def compose(self, *stages: Any) -> WebLoader:
        """Return a loader with more stages; see `Fluent.compose`."""
        added = [as_stage(stage, has_state=True) for stage in stages]
        seed = self._inner.options.seed
        added = [
            stage.with_default_seed(seed) if isinstance(stage, Shuffle) else stage
            for stage in added
            if not isinstance(stage, Shuffle) or stage.size > 0
        ]
        return self.changed(_stages=(*self._stages, *added))

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> WebLoader:
        """Return a loader with a fixed number of outputs per loop; see `Fluent.with_epoch`."""
        return self.changed(_epoch=number_of_outputs("with_epoch", nsamples, nbatches))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> WebLoader:
        """Return a loader that reads the data set several times; see `Fluent.repeat`."""
        if nbatches > 0 and nepochs <= 0:
            return self.with_epoch(nbatches)
        if nepochs != 1 and any(isinstance(stage, Slice) for stage in self._stages):
            raise ConfigError("slice() counts over all passes: FluidWrapper(….slice(…)).repeat(…)")
        return self.changed(_inner=self._inner.repeat(nepochs, nbatches), _epoch=None)

    def with_length(self, n: int, silent: bool = False) -> WebLoader:
        """Return a loader whose ``len()`` is `n`; see `Fluent.with_length`."""
        return self.changed(_length=checked_length(n, self.known_length(), silent=silent))

    def close(self) -> None:
        """Stop worker processes that wait for the next loop, which starts others."""
        self._pool = None

    def known_length(self) -> int | None:
        """Return the number of outputs of a loop, or None if it is unknown."""
        if self._epoch is not None:
            return self._epoch
        return None if self._stages else self._pipeline.known_length()

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the outputs of the next loop."""
        yield from self._pipeline.publishing(self._outputs(), self._position, self._stages)

    def _outputs(self) -> Generator[Any, None, None]:
        latest, session = self._latest, self._pipeline.dataset.session
        run = session.run
        if latest is not None and latest.has_failed and self._loaded:
            self.load_state_dict(self._loaded)
        if self._progress is not None or self._loaded is None:
            self._loaded = self._pipeline.next_state()
        session.own_counters()
        num_jumps = run.num_jumps
        start, skipped = self._start, self._skipped_outputs
        self._start, self._skipped_outputs = PipelinePosition(), 0
        progress = self._progress = self._latest = Progress(
            PipelinePosition(0, start.after, start.counts)
        )
        outputs: Iterator[Any] = self._worker_outputs(progress, skipped)
        limited = self._limit and self._pipeline.dataset.size  # else there are no outputs
        stages = (*self._stages, Limit(self._limit)) if limited else self._stages
        for number, stage in enumerate(stages):
            outputs = stage.run(outputs, progress, number)
        try:
            for output in outputs:
                run.check_jumps(num_jumps)
                if progress.count_output():
                    self._progress = progress  # another loop may have yielded since
                    yield output
        except GeneratorExit:
            raise
        except BaseException:
            progress.has_failed = progress.epoch is None
            raise
        if progress.epoch is None:  # workers had no outputs, or a stage has ended the loop before
            self._pipeline.mark_started()  # its next loop starts at the beginning, not at a loaded position
            part = progress.loop or session.skip()
            progress.epoch, progress.first = part.epoch, session.step_of(part.start)
        self._progress, progress.done = progress, True

    @closed_at_exit
    def _worker_outputs(self, progress: Progress, skipped: int) -> Iterator[Any]:
        """Yield the outputs of workers, without the first `skipped`, which were used before."""
        workers = max(int(self._kwargs.get("num_workers") or 0), 1)
        positions = self._pipeline.start_positions(workers)
        even_positions, made, extra_outputs = positions, 0, 0
        progress.rest_mark = ((), tuple(positions), skipped, 0)
        session = self._pipeline.dataset.session
        loop, num_jumps = session.begin(), session.run.num_jumps
        loop.is_ahead, progress.loop = True, loop
        clock = loop.clock
        clock.enter(HANDOVER)
        with session.looping(loop), self._reading(loop) as outputs:
            for worker, number, epoch, first, position, output in outputs:
                session.run.check_jumps(num_jumps)
                if number > made:
                    even_positions, made, extra_outputs = list(positions), number, 0
                positions = [
                    *positions[:worker],
                    PipelinePosition(*position),
                    *positions[worker + 1 :],
                ]
                extra_outputs += 1
                progress.epoch, progress.first = epoch, first
                turn = (worker + 1) % workers
                progress.mark = (tuple(positions), tuple(even_positions), extra_outputs, turn)
                progress.used += 1
                loop.num_steps += 1
                if progress.used > skipped:
                    clock.leave()
                    yield output
                    clock.enter(HANDOVER)
            loop.end()
            clock.leave()

    @contextmanager
    def _reading(self, loop: Loop) -> Iterator[Iterator[Any]]:
        """Yield the outputs of workers, which read for a loop."""
        pool = self._pool
        if pool is None or not pool.is_free:
            pool = WorkerPool(_PipelineReader(self._pipeline, self._convert), **self._kwargs)
            self._pool = pool if self._kwargs.get("persistent_workers") else None
        assignment = Assignment(self._pipeline.dataset.session.snapshot(), loop.start, loop.number)
        with pool.lease(), closing(pool.read(assignment, loop.clock)) as outputs:
            if pool.num_workers:  # which have copies of the pipeline now
                self._pipeline.mark_started()
            yield outputs

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the training loop after its last output; see `Pipeline.state_dict`."""
        progress, pipeline = self._progress, self._pipeline
        if progress is None or progress.epoch is None:
            return self._loaded or pipeline.next_state()
        pipeline.dataset.session.run.warn_about_others()
        if progress.done:
            return pipeline.next_state(progress.epoch + 1, 0)
        return pipeline.state_of(self._position(), [stage.name for stage in self._stages])

    def _position(self) -> RankPosition:
        """Return the position of this rank."""
        progress = cast("Progress", self._progress)
        positions, even_positions, extra_outputs, turn = progress.rest_mark
        position = self._pipeline.position_of(
            progress.epoch or 0,
            progress.first,
            list(positions),
            list(even_positions),
            extra_outputs,
            turn=turn,
        )
        own = progress.position
        if own.at_rest:
            return position
        return replace(position, loader=PipelinePosition(0, own.after, own.counts))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loader stopped; see `Pipeline.load_state_dict`."""
        self._pool = None  # workers have copies of the pipeline, with the positions where it starts
        state = self._pipeline.check_state(saved)
        position = state.position or RankPosition(0, 0)
        names = [stage.name for stage in self._stages]
        if position.loader is not None and state.loader_stages != names:
            raise StateError(
                f"the state is of the loader's stages {state.loader_stages}, these are {names}"
            )
        self._pipeline.go_to(state)
        self._start = position.loader or PipelinePosition()
        self._skipped_outputs = position.given
        self._loaded, self._progress, self._latest = state.to_state(), None, None


class _PipelineReader:
    """Reads a pipeline in a worker: yields its position with each converted output."""

    def __init__(self, pipeline: Pipeline, convert: Callable[[Any], Any]) -> None:
        self.dataset, self._convert = pipeline, convert

    @property
    def session(self) -> Session:
        """The session of the data set of the pipeline."""
        return self.dataset.dataset.session

    def read(self, part: Part) -> Generator[tuple[Any, ...], None, None]:
        """Yield the outputs of a part, each with the number of this worker, and where the pipeline stands."""
        worker = get_worker_info()
        number = worker.id if worker else 0
        clock = part.clock
        with self.session.telling(part, by_any_thread=True):  # a stage may read ahead
            clock.enter(TRANSFORM)
            for output in self.dataset.outputs():
                progress = self.dataset.progress
                position = (
                    progress.position.used,
                    progress.position.after,
                    progress.position.counts,
                )
                converted = self._convert(output)
                clock.leave()
                yield number, progress.made, progress.epoch, progress.first, position, converted
                clock.enter(TRANSFORM)
            clock.leave()

    def nbytes(self, _: Any) -> int:
        """Return that of a message, so that each output has its own: the next one may take long."""
        return sys.maxsize


def _has_plan(dataset: Any) -> bool:
    """Return whether a data set is a pipeline of archives; those over iterables pass for pipelines, too."""
    return isinstance(dataset, Pipeline) and not isinstance(dataset, IterablePipeline)


def _identity(output: Any) -> Any:
    return output


WebLoader.register(IterablePipeline)
