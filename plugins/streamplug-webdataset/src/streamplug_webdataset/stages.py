"""Stages of pipelines: each maps an iterator to an iterator, and reports what it holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streamplug.config import is_integer, whole_number
from streamplug.errors import ConfigError, UnsafeTypeError, add_note
from streamplug_webdataset.handlers import Handler, checked, left_out, reraise_exception
from streamplug_webdataset.names import KEY, URL
from streamplug_webdataset.progress import PipelinePosition, Progress
from streamplug_webdataset.utils import Cached, PipelineStage


class LEFT_OUT:  # noqa: N801 - a value; a class stays itself in a copy that is sent to a worker
    """Output of a function for a sample that is left out."""


class Stage:
    """A step of a pipeline.

    Attributes:
        name: Name in states and errors.
        keeps: Whether the stage makes one output of each sample, if its functions do as they should.
        counts: Whether the number of its outputs depends on the number of samples alone, not on their values.
    """

    name = "stage"
    keeps = counts = False

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        """Yield the outputs for `source`; `at` is the number of the stage in its pipeline."""
        raise NotImplementedError

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        """Return the outputs for samples, outside of a pipeline."""
        return self.run(iter(source), Progress(PipelinePosition()), 0)


class MapStage(Stage):
    """Maps each sample to one output or none."""

    def __init__(
        self,
        name: str,
        apply: Callable[[Any], Any],
        handler: Handler = reraise_exception,
        *,
        keeps: bool = True,
    ) -> None:
        """Apply a function to each sample; `keeps` says whether none is left out.

        Raises:
            ConfigError: If the handler is invalid.
        """
        self.name = name
        self._apply, self._handler = apply, checked(handler, name)
        self.keeps = self.counts = keeps and handler is reraise_exception

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        apply = self._apply
        for sample in source:
            try:
                output = apply(sample)
            except (ConfigError, UnsafeTypeError):  # it would leave out all samples
                raise
            except Exception as error:  # noqa: BLE001 - the handler decides
                _note_sample(error, sample, self.name)
                left_out(self._handler, error, self.name)
                continue
            if output is not LEFT_OUT:
                yield output


class Batched(Stage):
    """Makes batches of a fixed number of samples."""

    counts = True

    def __init__(
        self, name: str, size: int, collate: Callable[[list[Any]], Any] | None, *, partial: bool
    ) -> None:
        """Make batches of `size`; a shorter last one only if `partial`.

        Raises:
            ConfigError: If the size is invalid, or `collate` is no function.
        """
        self.name = name
        self.size = whole_number(name, size, 1)
        self.partial = partial
        if collate is not None and not callable(collate):
            raise ConfigError(f"{name}: {collate!r:.60} is no function of a list of samples")
        self._collate = collate

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in source:
            progress.held += not batch
            batch.append(sample)
            if len(batch) == self.size:
                progress.held -= 1
                whole, batch = batch, []
                yield whole if self._collate is None else self._collate(whole)
        if batch:
            progress.held -= 1
            if self.partial:
                yield batch if self._collate is None else self._collate(batch)


class Unbatched(Stage):
    """Splits batches into samples."""

    def __init__(self, name: str, apart: Callable[[Any], Sequence[Any]]) -> None:
        """Split each batch by a function."""
        self.name, self._apart = name, apart

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        for batch in source:
            yield from _held(self._apart(batch), progress)


class Shuffle(Stage):
    """Shuffles samples: in the plan where possible, else within blocks.

    Attributes:
        size: Block size in samples; below 1, the order is kept.
        seed: Shuffle seed; None is that of the data set.
    """

    name = "shuffle"
    counts = True

    def __init__(self, size: int, seed: int | None = None) -> None:
        """Shuffle blocks of `size` samples.

        Raises:
            ConfigError: If the size is invalid.
        """
        size = max(size, 0) if is_integer(size) else size
        self.size = whole_number("shuffle", size, 0)
        self.seed = whole_number("seed", seed, 0)

    def with_default_seed(self, seed: int | None) -> Shuffle:
        """Return this stage if it has a seed, else one with `seed`."""
        return self if self.seed is not None else Shuffle(self.size, seed)

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        block: list[Any] = []
        if self.size < 1:
            yield from source
            return
        for sample in source:
            progress.held += not block
            block.append(sample)
            if len(block) >= self.size:
                whole, block = block, []
                yield from self._mixed(whole, progress, at)
        if block:
            yield from self._mixed(block, progress, at)

    def _mixed(self, block: list[Any], progress: Progress, at: int) -> Iterator[Any]:
        number = progress.counts.get(at, 0)
        draw = np.random.default_rng([self.seed or 0, progress.epoch or 0, number])
        progress.held -= 1
        progress.counts[at] = number + 1
        yield from _held([block[i] for i in draw.permutation(len(block)).tolist()], progress)


class Slice(Stage):
    """Selects samples by number, as `itertools.islice`."""

    name = "slice"
    counts = True

    def __init__(self, *bounds: int | None) -> None:
        """Select the samples of ``slice(*bounds)``, whose bounds are not negative.

        Raises:
            ConfigError: If the bounds are invalid.
        """
        chosen = slice(*bounds) if 1 <= len(bounds) <= 3 else slice(-1)
        numbers = [chosen.start or 0, chosen.stop or 0, 1 if chosen.step is None else chosen.step]
        if not all(isinstance(n, int) and n >= low for n, low in zip(numbers, (0, 0, 1))):
            raise ConfigError(
                f"slice{bounds}: expected stop, or start, stop and step, as for islice"
            )
        self._stop = chosen.stop
        self._step, self._start = numbers[2], numbers[0]

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        seen = progress.counts.get(at, 0)
        while self._stop is None or seen < self._stop:
            try:
                sample = next(source)
            except StopIteration:
                return
            ahead = seen - self._start
            seen += 1
            progress.counts[at] = seen
            if ahead >= 0 and ahead % self._step == 0:
                yield sample


class Limit(Slice):
    """Ends a loop after a number of outputs, which a pipeline that is read pass after pass must reach."""

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        yield from super().run(source, progress, at)
        count = progress.counts.get(at, 0)
        if self._stop is not None and count < self._stop:
            raise ConfigError(
                f"with_epoch(): a stage, such as slice(), ended the loop after {count} of {self._stop} "
                "outputs; FluidWrapper(pipeline).with_epoch(…) starts it again"
            )


class Sampled(Stage):
    """Selects samples at random by number: the same ones each time that an epoch is read."""

    name = "rsample"
    counts = True
    _BLOCK = 1024  # random numbers generated together

    def __init__(self, p: Any) -> None:
        """Keep each sample with the probability `p`.

        Raises:
            ConfigError: If `p` is not a probability.
        """
        if not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
            raise ConfigError(f"rsample({p!r:.60}): expected a probability, from 0 to 1")
        self._p = float(p)

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        number, drawn, draws = progress.counts.get(at, 0), -1, np.empty(0)
        for sample in source:
            block, place = divmod(number, self._BLOCK)
            if block != drawn:
                draws = np.random.default_rng([at, progress.epoch or 0, block]).random(self._BLOCK)
                drawn = block
            number += 1
            progress.counts[at] = number
            if draws[place] < self._p:
                yield sample


class FunctionStage(Stage):
    """A user's function from an iterator to an iterator."""

    def __init__(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> None:
        """Apply `function`.

        Raises:
            ConfigError: If it is not callable.
        """
        if not callable(function):
            raise ConfigError(f"{function!r:.80} is no stage: expected a function of an iterator")
        self.name, self._function = getattr(function, "__name__", "stage"), function

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        progress.held += 1  # it is unknown what the function holds
        outputs = self._function(source)
        if not isinstance(outputs, Iterable):
            raise ConfigError(
                f"{self.name}() returned {type(outputs).__name__}: a stage returns an iterator of samples"
            )
        yield from outputs


def as_stage(stage: Any, *, has_state: bool) -> Stage:
    """Return a stage for an object of `Stage` or `PipelineStage`, or for a function of an iterator.

    Raises:
        ConfigError: If it is none of these, or stores samples in a pipeline that has a state.
    """
    if isinstance(stage, Stage):
        return stage
    if isinstance(stage, Cached) and has_state:
        raise ConfigError(
            "Cached(): a pipeline of archives has a state, which is a position in the archives; use "
            "cache_dir=, or a DataPipeline over an iterable"
        )
    if not isinstance(stage, PipelineStage):
        return FunctionStage(stage)
    made = FunctionStage(stage.run)
    made.name = type(stage).__name__
    return made


class LogKeys(Stage):
    """Logs the keys of samples to a file, one line each, with the process that read it."""

    name = "log_keys"
    keeps = counts = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Append to the file `path`.

        Raises:
            ConfigError: If it is no path.
        """
        if not isinstance(path, (str, os.PathLike)):  # a number would be an open file
            raise ConfigError(f"log_keys({path!r:.60}): expected a path")
        self._path = path

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        with open(self._path, "ab", buffering=0) as out:  # noqa: PTH123 - appended to by several at once
            for sample in source:
                out.write(f"{os.getpid()}\t{progress.used - 1}\t{sample.get('__key__')}\n".encode())
                yield sample


def _note_sample(error: Exception, sample: Any, stage: str) -> None:
    """Note in an error of a stage which sample it is of, if that has its names yet."""
    if isinstance(sample, dict) and KEY in sample:
        archive = f" of {sample[URL]}" if URL in sample else ""
        add_note(error, f"raised by {stage}() for sample {sample[KEY]!r}{archive}")


def _held(samples: Sequence[Any], progress: Progress) -> Iterator[Any]:
    """Yield samples; they count as held until the last."""
    if not len(samples):
        return
    progress.held += 1
    last = len(samples) - 1
    for number, sample in enumerate(samples):
        if number == last:
            progress.held -= 1
        yield sample
