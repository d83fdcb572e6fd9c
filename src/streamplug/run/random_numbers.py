"""Random generators that depend on nothing but the seed, the epoch, the step and the sample."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.run.exit import closed_at_exit
from streamplug.run.feed import Block
from streamplug.run.loop import Part
from streamplug.types import ColumnValues, Sample

_SAMPLE, _BATCH = 0, 1  # part of the counter, so that a sample and a batch share no numbers
_WORD = (1 << 64) - 1
_PARAMETERS = {"transform": "sample", "batch_transform": "batch"}


class SampleRng:
    """A random generator that is set anew for each sample: seed and epoch are its key, the rest its counter.

    The Philox generator turns a counter into random numbers, so each place has a stream of its own, of 2**64
    blocks, and none has to be drawn to reach another.
    """

    def __init__(self, seed: int) -> None:
        self._philox = np.random.Philox(0)
        self._rng = np.random.Generator(self._philox)
        self._key = [seed & _WORD, 0]
        self._counter = [0, 0, 0, 0]
        # Lists: NumPy copies them item by item, which takes twice as long with arrays.
        self._state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": self._counter, "key": self._key},
            "buffer": [0, 0, 0, 0],
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def of_sample(self, epoch: int, step: int, sample_id: int) -> np.random.Generator:
        """Return the generator, set to the numbers of a sample; valid until the next call."""
        return self._set(epoch, _SAMPLE, step, sample_id)

    def of_batch(self, epoch: int, step: int, rank: int) -> np.random.Generator:
        """Return the generator, set to the numbers of a rank's batch; valid until the next call."""
        return self._set(epoch, _BATCH, step, rank)

    def _set(self, epoch: int, kind: int, step: int, number: int) -> np.random.Generator:
        self._key[1] = epoch
        self._counter[1:] = kind, step, number
        self._philox.state = self._state
        return self._rng


def sample_rng(seed: int, epoch: int, step: int, sample_id: int) -> np.random.Generator:
    """Return the random generator with which a loader calls ``transform(sample, rng)``.

    Args:
        seed: The data set's `shuffle_seed`.
        epoch: Number of the epoch, from 0.
        step: Number of the global batch in the epoch, from 0. With batches of a budget, that is
            ``step * ranks // micro_batches`` for a step of `StreamingDataset.explain`.
        sample_id: Sample id, from 0, as in `StreamingDataset.explain`.

    Raises:
        ConfigError: If a number is negative or no integer.
    """
    place = {"seed": seed, "epoch": epoch, "step": step, "sample_id": sample_id}
    for name, number in place.items():
        if whole_number(name, number, 0) is None:
            raise ConfigError(f"{name}=None: must be a whole number of at least 0")
    return SampleRng(int(seed)).of_sample(int(epoch), int(step), int(sample_id))


def place_of(rng: np.random.Generator) -> tuple[int, int, int] | None:
    """Return epoch, step and sample id of the generator of a sample; None for any other generator."""
    state: Any = rng.bit_generator.state
    if state["bit_generator"] != "Philox" or state["state"]["counter"][1] != _SAMPLE:
        return None
    step, sample_id = state["state"]["counter"][2:].tolist()
    return int(state["state"]["key"][1]), step, sample_id


def takes_rng(function: Callable[..., Any], name: str) -> bool:
    """Return whether a transform takes a generator: it requires two parameters.

    Args:
        function: The transform; one whose signature is unknown takes none.
        name: Its name as a parameter, ``"transform"`` or ``"batch_transform"``.

    Raises:
        ConfigError: If it is no function, or has other required parameters.
    """
    if not callable(function):
        raise ConfigError(f"{name}={function!r:.60}: expected a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(required) > 2 or any(p.kind is p.KEYWORD_ONLY for p in required):
        value = _PARAMETERS[name]
        raise ConfigError(
            f"{name}={function!r:.80} requires {[p.name for p in required]}: expected a function of "
            f"({value}) or ({value}, rng); bind other arguments by functools.partial"
        )
    return len(required) == 2


class RngIteration:
    """Mixin with the iterations of a data set that yield random generators."""

    @closed_at_exit
    def samples_with_rng(self: Any) -> Iterator[tuple[Sample, np.random.Generator]]:
        """Yield this worker's samples of the next epoch, each with its random generator.

        A generator depends on `shuffle_seed`, the epoch, the step and the sample id alone, see `sample_rng`.
        It is one object, set anew for each sample: use it before the next sample is taken.

        Raises:
            ConfigError: If a subclass yields more or fewer samples than the order has.
        """
        session = self._session
        by_any_thread = self.may_read_ahead
        with (
            session.looping(session.begin()) as loop,
            session.telling(loop, by_any_thread=by_any_thread),
        ):
            yield from self.samples_of(loop)

    def samples_of(self: Any, part: Part) -> Iterator[tuple[Sample, np.random.Generator]]:
        """Yield the samples of `part`, which the session was told, as `samples_with_rng`."""
        session = self._session
        rng = SampleRng(session.run.options.shuffle_seed)
        blocks = part.blocks = deque[Block]()
        global_step = lambda step: session.run.global_step(part.epoch, step, session.world)  # noqa: E731
        places = _places(part.epoch, blocks, global_step)
        for sample in self:
            if (place := next(places, None)) is None:
                raise _one_to_one(self)
            yield sample, rng.of_sample(*place)
        if next(places, None) is not None:
            raise _one_to_one(self)

    @closed_at_exit
    def batches_with_rng(
        self: Any, batch_size: int | None = None, *, num_threads: int = 0
    ) -> Iterator[tuple[dict[str, ColumnValues], np.random.Generator]]:
        """Yield this rank's batches of the next epoch as `batches`, each with its random generator.

        A generator depends on `shuffle_seed`, the epoch, the step and the rank. It is one object, set anew
        for each batch: use it before the next batch is taken.

        Args:
            batch_size: As for `batches`.
            num_threads: As for `batches`.

        Raises:
            ConfigError: As for `batches`.
        """
        session = self._session
        rng = SampleRng(session.run.options.shuffle_seed)
        by_any_thread = self.may_read_ahead
        with (
            session.looping(session.begin()) as loop,
            session.telling(loop, by_any_thread=by_any_thread),
        ):
            for batch in self.batches(batch_size, num_threads=num_threads):
                epoch, step = loop.latest_place()
                yield batch, rng.of_batch(epoch, step, session.world.rank)


def _places(
    epoch: int, blocks: deque[Block], global_step: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Yield epoch, step and sample id of each sample of some blocks, which it removes from the left."""
    while blocks:
        latest = number = -1
        for step, sample_id in blocks.popleft().samples():
            if step != latest:
                latest, number = step, global_step(step)
            yield epoch, number, sample_id


def _one_to_one(dataset: Any) -> ConfigError:
    return ConfigError(
        f"{type(dataset).__name__}.__iter__ must yield one value per sample, in order, for random generators "
        "that belong to samples; change samples in __getitem__ or in the transform"
    )
