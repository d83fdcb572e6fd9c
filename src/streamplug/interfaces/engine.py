"""Engines, which run the tasks that write the parts of a data set."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

from streamplug.errors import ConfigError, WriterError

Task = Callable[[int], object]
"""What an engine is given: called with a number, it does what has that number."""


class Engine(ABC):
    """Calls a task for numbers, several at once, in processes that may be on other machines.

    Where a worker is lost, the engine calls the task again elsewhere. So it may happen that a number is
    called twice, even at the same time; the tasks of this library stand that.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
    """

    api_version: ClassVar[int] = 1

    @classmethod
    def from_spec(cls, argument: str | None) -> Engine:
        """Make the engine for what follows its name, such as an address: None for the bare name.

        Raises:
            ConfigError: If the argument has no meaning.
        """
        if argument is not None:
            raise ConfigError(f"engine {cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task once for each number; yield those that are done, in the order in which they end.

        Leaving the iterator gives up the calls that have not begun.

        Args:
            task: What to call. `pack_task` makes bytes of it, and `run_packed_task` calls it in the worker.
            numbers: What with.

        Raises:
            ConfigError: If the task cannot travel, or the engine cannot be used.
            WriterError: If a call raises; the text is that of its error. Or if workers are lost over a
                number again and again.
        """


def pack_task(task: Task) -> bytes:
    """Return a task as bytes that other processes understand; functions of scripts go along by value.

    Raises:
        ConfigError: If it holds what cannot travel.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{type(error).__name__}: {error}; what other processes shall call cannot hold open files, "
            "locks or connections: make them inside the function, or pass processes=0"
        ) from error
    return data


def run_packed_task(number: int, task: bytes) -> str | None:
    """Call a task that was packed with a number; return what went wrong, or None.

    Errors come back as values, so that an engine that calls again what raises does not do so in vain.
    """
    try:
        call = _unpacked(task)
    except Exception as error:  # noqa: BLE001 - whatever a module raises that the worker has to import
        return (
            f"part {number}: a worker cannot load what it shall call: {type(error).__name__}: {error}; "
            "modules that it uses must be installed on all workers"
        )
    try:
        call(number)
    except Exception as error:  # noqa: BLE001 - it is for who runs the engine to raise
        return describe_task_error(number, error)
    return None


def describe_task_error(number: int, error: Exception) -> str:
    """Return what to say of an error that a task raised, which may have said it already."""
    if isinstance(error, WriterError):
        return str(error)
    return f"part {number}: {type(error).__name__}: {error}"


@lru_cache(maxsize=1)
def _unpacked(task: bytes) -> Task:
    loaded: Task = pickle.loads(task)  # noqa: S301 - packed by the process that asks for it
    return loaded
