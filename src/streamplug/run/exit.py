"""Closing of the loops that a program leaves alive, before the interpreter takes its modules apart."""

from __future__ import annotations

import atexit
import os
import traceback
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
G = TypeVar("G", bound=Iterator[Any])

_generators: WeakSet[Any] = WeakSet()


def closed_at_exit(function: Callable[P, G]) -> Callable[P, G]:
    """Decorate a generator function: its generators are closed when the program ends.

    Later, their `finally` blocks would find no modules to work with.
    """

    @wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> G:
        _prepare_exit()
        generator = function(*args, **kwargs)
        _generators.add(generator)
        return generator

    return make


@cache
def _prepare_exit() -> None:
    # Late, as what is registered last comes first: before torch and multiprocessing end their workers.
    atexit.register(_close_all)


def _close_all() -> None:
    for generator in list(_generators):
        try:
            generator.close()
        except ValueError:
            pass  # another thread is in it
        except Exception:  # noqa: BLE001 - the others are still to be closed
            traceback.print_exc()


# A forked process ends no loop of the one that it comes from.
os.register_at_fork(after_in_child=_generators.clear)
