"""What pipelines of webdataset are built with: stages that are objects, and iterables that are repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from streamplug.errors import ConfigError


class PipelineStage:
    """A stage that is an object: a subclass has a method ``run``, which takes an iterator and returns one."""

    def run(self, *args: Any) -> Iterable[Any]:
        """Return the outputs of the stage.

        Raises:
            NotImplementedError: If the subclass does not say.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method run(self, source)")

    def invoke(self, *args: Any, **kw: Any) -> Iterable[Any]:
        """Return the outputs of the stage, by another name."""
        return self.run(*args, **kw)


class Cached(PipelineStage):
    """Stores all samples of the first complete pass in memory, and yields them in later passes."""

    def __init__(self) -> None:
        """Start without samples."""
        self.cached: list[Any] | None = None

    def run(self, source: Iterable[Any]) -> Iterator[Any]:
        """Yield the samples of `source`, or the stored ones."""
        if self.cached is not None:
            yield from self.cached
            return
        buffered = []
        for sample in source:
            buffered.append(sample)
            yield sample
        self.cached = buffered


def identity(x: Any) -> Any:
    """Return what is given."""
    return x


def guess_batchsize(batch: Any) -> int:
    """Return how many samples a batch has: the length of its first value."""
    return len(batch[0])


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[..., int] = guess_batchsize,
) -> Iterator[Any]:
    """Yield what an iterable has, again and again, up to a number of passes, batches or samples.

    Args:
        source: Can be iterated over more than once.
        nepochs: After how many passes to end.
        nbatches: After how many outputs.
        nsamples: After how many samples, of which outputs are batches.
        batchsize: Returns how many samples a batch has.

    Raises:
        ConfigError: If a pass has no outputs, which would go on without end.
    """
    batches = samples = 0
    for epoch in count():
        if nepochs is not None and epoch >= nepochs:
            return
        before = batches
        for batch in source:
            yield batch
            batches += 1
            if nbatches is not None and batches >= nbatches:
                return
            if nsamples is not None:
                samples += batchsize(batch)
                if samples >= nsamples:
                    return
        if batches == before:
            if nepochs is not None:
                return
            raise ConfigError("repeatedly: a pass had no outputs, so it would go on without end")
