"""WebLoader: a DataLoader of a pipeline, to which stages can be added, and whose state is exact."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from streamplug.errors import ConfigError, StateError
from streamplug.types import World
from streamplug_webdataset.fluent import Fluent
from streamplug_webdataset.iterable import IterablePipeline
from streamplug_webdataset.pipeline import Pipeline, checked_length, outputs_of
from streamplug_webdataset.stages import Batched, Own, Shuffle, Slice, Stage
from streamplug_webdataset.tally import Place, Tally


class WebLoader(Fluent):
    """Runs a pipeline in worker processes; stages that are added run in this one, on what workers hand over.

    Args:
        dataset: A pipeline, such as a `WebDataset`.
        batch_size: Outputs of the pipeline to a batch; None takes them as they are, as for a pipeline that
            ends with `batched`.
        collate_fn: Makes a batch; None does it as torch.
        drop_last: Whether a last batch of each worker that is short is left out.
        **kwargs: Further arguments of `torch.utils.data.DataLoader`, such as `num_workers`.

    Raises:
        ConfigError: If it is no pipeline, or outputs would come in another order.
    """

    def __new__(cls, dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return a loader; one without a state where `dataset` is no pipeline on a plan."""
        if isinstance(dataset, Pipeline) or not isinstance(dataset, IterableDataset):
            return super().__new__(cls)  # without any, it is being copied
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
        if not isinstance(dataset, Pipeline):
            raise ConfigError(
                f"WebLoader loads a pipeline of this package, not {dataset!r:.80}; use torch's DataLoader"
            )
        if kwargs.get("shuffle") or kwargs.get("sampler") or kwargs.get("batch_sampler"):
            raise ConfigError("shuffle=, sampler=: the pipeline says the order; see its shuffle()")
        if not kwargs.get("in_order", True):
            raise ConfigError("in_order=False: a state says how many outputs were used, in order")
        if batch_size is None and (collate_fn is not None or drop_last):
            raise ConfigError("collate_fn= and drop_last= need a batch_size")
        if batch_size is not None:
            collate = collate_fn or default_collate
            stage = Batched("batches of the loader", batch_size, collate, partial=not drop_last)
            dataset = dataset.compose(stage)
        kwargs.pop("shuffle", None)
        self._inner, self._kwargs = dataset, kwargs
        self._stages: tuple[Stage, ...] = ()
        self._epoch: int | None = None
        self._length = None
        self._begin()

    def _begin(self) -> None:
        """Take the pipeline up as the stages want it."""
        self._pipeline, self._limit = self._inner, 0
        if self._epoch is not None and not self._stages:
            self._pipeline = self._inner.with_epoch(self._epoch)
        elif self._epoch is not None:
            self._pipeline, self._limit = self._inner.repeat(), self._epoch
        else:
            self._pipeline = self._inner.compose()
        self._loader: DataLoader[Any] | None = None
        # Where the next loop begins, beyond what the pipeline knows; and the loop that is under way.
        self._given, self._place = 0, Place()
        self._loaded: dict[str, Any] | None = None
        self._tally: Tally | None = None

    @property
    def pipeline(self) -> Pipeline:
        """What the workers run."""
        return self._pipeline

    # -- what it is made of -----------------------------------------------------------

    def _changed(self, **changes: Any) -> WebLoader:
        made = copy.copy(self)
        made.__dict__.update(changes)
        made._begin()
        return made

    def compose(self, *stages: Any) -> WebLoader:
        """Return a loader with more stages; see `Fluent.compose`."""
        made = [each if isinstance(each, Stage) else Own(each) for each in stages]
        made = [each for each in made if not isinstance(each, Shuffle) or each.size > 0]
        return self._changed(_stages=(*self._stages, *made))

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> WebLoader:
        """Return a loader with loops of so many outputs; see `Fluent.with_epoch`."""
        return self._changed(_epoch=outputs_of("with_epoch", nsamples, nbatches))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> WebLoader:
        """Return a loader that reads the data set more than once; see `Fluent.repeat`."""
        if nbatches > 0 and nepochs <= 0:
            return self.with_epoch(nbatches)
        return self._changed(_inner=self._inner.repeat(nepochs, nbatches), _epoch=None)

    def with_length(self, n: int, silent: bool = False) -> WebLoader:
        """Return a loader whose ``len()`` is `n`; see `Fluent.with_length`."""
        return self._changed(_length=checked_length(n, self._known_length(), silent=silent))

    def close(self) -> None:
        """End worker processes that wait for the next loop, which begins others."""
        self._loader = None

    def _known_length(self) -> int | None:
        if self._epoch is not None:
            return self._epoch
        return None if self._stages else self._pipeline._known_length()

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the outputs of the next loop."""
        begin, given = self._place, self._given
        self._place, self._given = Place(), 0
        tally = self._tally = Tally(Place(0, begin.after, begin.counts))
        outputs: Iterator[Any] = self._outputs(tally, given)
        stages = (*self._stages, Slice(self._limit)) if self._limit else self._stages
        for at, stage in enumerate(stages):
            outputs = stage.run(outputs, tally, at)
        for number, output in enumerate(outputs, 1):
            tally.moved()
            if number > begin.after:
                tally.made += 1
                yield output
        if tally.epoch is None:  # there was nothing left of it
            tally.epoch, tally.first = self._pipeline.dataset.session.current_epoch()
        tally.done = True

    def _outputs(self, tally: Tally, given: int) -> Iterator[Any]:
        """Yield what workers hand over, but for the first `given`, which were used already."""
        workers = max(int(self._kwargs.get("num_workers") or 0), 1)
        self._pipeline._part(World(workers_per_rank=workers))  # refuses what is of other processes
        now = self._pipeline._parts or [Place()] * workers
        before, made, ahead = now, 0, 0
        tally.rest_mark = ((), tuple(now), given)
        if self._loader is None:
            self._loader = DataLoader(
                _Told(self._pipeline), batch_size=None, collate_fn=_as_it_is, **self._kwargs
            )
        told = iter(self._loader)
        if self._kwargs.get("num_workers"):
            self._pipeline._parts = []  # the workers have them
        for worker, number, epoch, first, place, output in told:
            if number > made:
                before, made, ahead = list(now), number, 0
            now = [*now[:worker], Place(*place), *now[worker + 1 :]]
            ahead += 1
            tally.epoch, tally.first = epoch, first
            tally.mark = (tuple(now), tuple(before), ahead)
            tally.used += 1
            if tally.used > given:
                yield output

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the training loop stands, as plain JSON values: after its last output."""
        tally, pipeline = self._tally, self._pipeline
        if tally is None or tally.epoch is None:
            return self._loaded or pipeline.dataset.session.next_state()
        if tally.done:
            return pipeline.dataset.session.state_at(tally.epoch + 1, 0)
        now, before, ahead = tally.rest_mark
        state = pipeline.state_of(tally.epoch, tally.first, list(now), list(before), ahead)
        place = tally.place
        if not place.plain:
            state["loader"] = Place(0, place.after, place.counts).saved()
            state["loader_stages"] = [stage.name for stage in self._stages]
        return state

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loader stood; see `Pipeline.load_state_dict`."""
        self._loader = None  # persistent workers may be ahead
        rest: Any = saved
        place = stages = None
        if isinstance(rest, dict):
            rest = dict(rest)
            place, stages = rest.pop("loader", None), rest.pop("loader_stages", None)
        names = [stage.name for stage in self._stages]
        if place is not None and stages != names:
            raise StateError(f"the state is of the loader's stages {stages}, these are {names}")
        given = rest.get("given", 0) if isinstance(rest, dict) else 0
        if type(given) is not int or given < 0:
            raise StateError(f"the state has given={given!r:.80}, expected a number of outputs")
        self._pipeline.load_state_dict(rest)
        self._place = Place() if place is None else Place.loaded(place)
        self._given, self._loaded, self._tally = given, dict(saved), None


class _Told(IterableDataset[Any]):
    """A pipeline that tells with each output where it stands."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        worker = get_worker_info()
        for output in self._pipeline:
            tally = self._pipeline.tally
            place = tally.place
            told = (place.used, place.after, place.counts)
            yield worker.id if worker else 0, tally.made, tally.epoch, tally.first, told, output


def _as_it_is(output: Any) -> Any:
    return output


WebLoader.register(IterablePipeline)
