"""Transforms of a loader that draw random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from streamplug.config import check_flags
from streamplug.errors import ConfigError
from streamplug.run import takes_rng


@dataclass(frozen=True, slots=True)
class RandomTransform:
    """A transform that is called with a random generator, or with torch and others seeded by one."""

    function: Callable[..., Any]
    takes_rng: bool
    seed_torch: bool

    def __call__(self, pair: tuple[Any, np.random.Generator]) -> Any:
        """Return the result for a sample or a batch and its generator; inside `states`."""
        value, rng = pair
        if self.seed_torch:
            _seed(rng)
        return self.function(value, rng) if self.takes_rng else self.function(value)

    def states(self) -> AbstractContextManager[None]:
        """Restore the random states that calls set, at the end of a block."""
        return _preserve_states() if self.seed_torch else nullcontext()


def random_transform(seed_torch: bool, **functions: Callable[..., Any] | None) -> Any:
    """Return the transform of a loader: as it is, or a `RandomTransform` if it needs a generator.

    A function with two required parameters takes a generator. One whose signature is unknown takes none.

    Args:
        seed_torch: Whether to seed torch, `random` and NumPy around each call.
        **functions: The functions by their parameter of the loader, of which one at most is not None.

    Raises:
        ConfigError: If the function has other required parameters, or there is none to seed torch for.
    """
    check_flags(seed_torch=seed_torch)
    used = {name: function for name, function in functions.items() if function is not None}
    if not used:
        if seed_torch:
            raise ConfigError(
                "seed_torch=True: give the transform= or batch_transform= to seed for"
            )
        return None
    [(name, function)] = used.items()
    with_rng = takes_rng(function, name)
    if with_rng or seed_torch:
        return RandomTransform(function, with_rng, bool(seed_torch))
    return function


def _seed(rng: np.random.Generator) -> None:
    """Seed torch, `random` and NumPy; `rng` has the same numbers afterwards."""
    generator = rng.bit_generator
    state = generator.state
    # Different seeds: torch and NumPy have the same algorithm, and would draw the same numbers.
    for_torch, for_python, for_numpy = generator.random_raw(3).tolist()
    generator.state = state
    torch.default_generator.manual_seed(for_torch)
    random.seed(for_python)
    np.random.seed(for_numpy >> 32)


@contextmanager
def _preserve_states() -> Iterator[None]:
    """Restore the random states of torch, `random` and NumPy at the end of a block."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
