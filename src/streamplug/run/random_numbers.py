"""Random generators that depend on nothing but the seed, the epoch, the step and the sample."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import LazyValue

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


class ThreadRng(threading.local):
    """A `SampleRng` for each thread that uses it: making one takes 16 times as long as setting it.

    Attributes:
        rng: That of the calling thread.
    """

    def __init__(self, seed: int) -> None:
        self.rng = SampleRng(seed)


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


@contextmanager
def name_value(value: object, column: str, rng: np.random.Generator) -> Iterator[None]:
    """Name in a `DecodeError` the value that a transform decodes: its place, else its sample and column."""
    try:
        yield
    except DecodeError as error:
        place = place_of(rng)
        where = "" if place is None else "epoch {}, step {}, sample {}, ".format(*place)
        if isinstance(value, LazyValue) and value.place is not None:
            raise DecodeError(f"{where}{value.name_place(error)}") from error
        raise DecodeError(f"{where}column {column!r}: {error}") from error


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
