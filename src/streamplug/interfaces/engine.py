"""Engines that run the tasks of a parallel write."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

from streamplug.errors import ConfigError, WriterError

Task = Callable[[int], object]
"""A function of a part's number that writes the part."""


class Engine(ABC):
    """Runs a task for many numbers, in parallel processes that may be on other machines.

    An engine calls the task again elsewhere if a worker is lost. So a number may be processed twice, even
    concurrently; the tasks of this library permit that.

    Attributes:
        api_version: Version of the interface that a subclass implements.
    """

    api_version: ClassVar[int] = 1

    @classmethod
    def from_spec(cls, argument: str | None) -> Engine:
        """Return the engine for the argument after its name, such as an address; None for the bare name.

        Raises:
            ConfigError: If the argument is invalid.
        """
        if argument is not None:
            raise ConfigError(f"engine {cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task for each number; yield the numbers as they complete.

        Closing the iterator cancels the calls that have not started.

        Args:
            task: The task, which `pack_task` pickles and `run_packed_task` calls in the worker.
            numbers: Numbers to call it with.

        Raises:
            ConfigError: If the task cannot be pickled, or the engine cannot be used.
            WriterError: If a call raises (with the text of its error), or if workers are lost repeatedly
                for one number.
        """


def pack_task(task: Task) -> bytes:
    """Pickle a task for other processes; functions of scripts are pickled by value.

    Raises:
        ConfigError: If it cannot be pickled.
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
    """Call a pickled task with a number; return an error message, or None.

    Errors are returned, not raised, so that an engine does not retry a task that fails deterministically.
    """
    try:
        call = _unpacked(task)
    except Exception as error:  # noqa: BLE001 - imports of the task can raise anything
        return (
            f"part {number}: a worker cannot load what it shall call: {type(error).__name__}: {error}; "
            "modules that it uses must be installed on all workers"
        )
    try:
        call(number)
    except Exception as error:  # noqa: BLE001 - the caller of the engine raises it
        return describe_task_error(number, error)
    return None


def describe_task_error(number: int, error: Exception) -> str:
    """Return the message for an exception that a task raised."""
    if isinstance(error, WriterError):
        return str(error)
    return f"part {number}: {type(error).__name__}: {error}"


@lru_cache(maxsize=1)
def _unpacked(task: bytes) -> Task:
    loaded: Task = pickle.loads(task)  # noqa: S301 - pickled by the parent process
    return loaded
