"""Pipelines over any iterable: a loader, a mixture, a list, or a function that returns an iterator.

They have no plan and therefore no state, and each process reads all that its iterable yields. Pipelines of
archives, such as `WebDataset`, have both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from streamplug.config import whole_number
from streamplug.errors import ConfigError, StateError
from streamplug_webdataset.fluent import Fluent, checked_length, number_of_outputs
from streamplug_webdataset.iterable_dataset import IterableDataset
from streamplug_webdataset.loop_counter import LoopCounter
from streamplug_webdataset.progress import PipelinePosition, Progress
from streamplug_webdataset.stages import Stage, as_stage
from streamplug_webdataset.utils import PipelineStage

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOP_BITS = 32


class IterablePipeline(Fluent, IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """Stages over an iterable, without a state.

    Attributes:
        pipeline: The source and the stages, in their order.
    """

    def __init__(self, *stages: Any) -> None:
        """Set the stages; the first is an iterable, or a function that returns an iterator.

        Raises:
            ConfigError: If the first is neither, or another is not a stage.
        """
        self.pipeline: list[Any] = []
        for stage in flattened(stages):
            self.append(stage)
        self._length = None
        self._passes, self._outputs = 1, 0
        self._loops = LoopCounter()

    # -- composition ------------------------------------------------------------------

    def append(self, f: Any) -> None:
        """Add a stage to this pipeline in place.

        Raises:
            ConfigError: If it is not a stage.
        """
        if self.pipeline:
            self.pipeline.append(as_stage(f, has_state=False))
        elif isinstance(f, (Iterable, PipelineStage)) or (callable(f) and not isinstance(f, Stage)):
            self.pipeline.append(f)
        else:
            raise ConfigError(
                f"{f!r:.80}: a pipeline begins with an iterable, or with a function that returns an iterator"
            )

    def stage(self, i: int) -> Any:
        """Return a stage by number; 0 is the source."""
        return self.pipeline[i]

    def compose(self, *stages: Any) -> Self:
        """Return a pipeline with more stages; see `Fluent.compose`."""
        made = self.changed()
        for stage in flattened(stages):
            made.append(stage)
        return made

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Return a pipeline with a fixed number of outputs per loop in each process.

        Each loop starts at the beginning of the source, which is read again if it ends too early.

        Args:
            nsamples: Number of outputs.
            nbatches: Alias of `nsamples`; the larger one is used.
        """
        return self.changed(_outputs=number_of_outputs("with_epoch", nsamples, nbatches), _passes=0)

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Return a pipeline that reads its source several times; see `Fluent.repeat`.

        Raises:
            ConfigError: If both are given.
        """
        if nbatches > 0:
            if nepochs > 0:
                raise ConfigError("repeat() takes a number of passes or one of outputs, not both")
            return self.with_epoch(nbatches)
        return self.changed(_passes=max(whole_number("repeat", nepochs, -1), 0), _outputs=0)

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Return a pipeline whose ``len()`` is `n`; see `Fluent.with_length`."""
        return self.changed(_length=checked_length(n, None, silent=silent))

    def reset(self) -> None:
        """Copy the list of stages; there is no state."""
        self.pipeline, self._loops = list(self.pipeline), LoopCounter()

    def known_length(self) -> int | None:
        """Return the number of outputs of a loop, or None if it is unknown."""
        return self._outputs or None

    def close(self) -> None:
        """Close the source and the stages that can be closed."""
        for stage in self.pipeline:
            if callable(close := getattr(stage, "close", None)):
                close()

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the outputs of the next loop.

        Raises:
            ConfigError: If the pipeline has no source.
        """
        if not self.pipeline:
            raise ConfigError("a pipeline without stages has no outputs: give it an iterable")
        outputs = self._all_passes()
        return islice(outputs, self._outputs) if self._outputs else outputs

    def _all_passes(self) -> Iterator[Any]:
        done, loop = 0, self._loops.begin()
        while not self._passes or done < self._passes:
            made = 0
            # Another order in each loop and pass, the same in all workers: they may split what is shuffled.
            for output in self._one_pass(loop + (done << _LOOP_BITS)):
                made += 1
                yield output
            done += 1
            if not made:
                return

    def _one_pass(self, epoch: int) -> Iterator[Any]:
        progress = Progress(PipelinePosition())
        progress.epoch = epoch
        source, *stages = self.pipeline
        if isinstance(source, PipelineStage):
            outputs = iter(source.run())
        else:
            outputs = iter(source) if isinstance(source, Iterable) else iter(source())
        for at, stage in enumerate(stages):
            outputs = stage.run(outputs, progress, at)
        return outputs

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> NoReturn:
        """Raise an error: the position in an iterable cannot be restored.

        Raises:
            StateError: Always.
        """
        raise StateError(
            "a pipeline over an iterable has no state; one that begins with WebDataset, or with "
            "SimpleShardList and tarfile_to_samples, has"
        )

    def load_state_dict(self, saved: Mapping[str, Any]) -> NoReturn:
        """Raise an error, as `state_dict`.

        Raises:
            StateError: Always.
        """
        self.state_dict()


class FluidWrapper(IterablePipeline):
    """A pipeline over one iterable, such as a mixture or a loader."""

    def __init__(self, initial: Any) -> None:
        """Read `initial`: an iterable, or a function that returns an iterator."""
        super().__init__(initial)


def flattened(stages: Iterable[Any]) -> list[Any]:
    """Return a flat list of stages without None."""
    flat: list[Any] = []
    for stage in stages:
        if isinstance(stage, list) and stage and all(map(_is_stage, stage)):
            flat += [inner for inner in stage if inner is not None]
        elif stage is not None:
            flat.append(stage)
    return flat


def _is_stage(stage: Any) -> bool:
    return (
        stage is None
        or callable(stage)
        or isinstance(stage, (Stage, PipelineStage, IterableDataset))
    )
