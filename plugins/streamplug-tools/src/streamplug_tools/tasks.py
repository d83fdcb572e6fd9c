"""Pickling of tasks, and calls of pickled tasks in other processes."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine, Task


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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - imports of the task can raise anything
        return (
            f"part {number}: a worker cannot load what it shall call: {type(error).__name__}: {error}; "
            "modules that it uses must be installed on all workers"
        )
    try:
        call(number)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller of the engine raises it
        return describe_task_error(number, error)
    return None


def describe_task_error(number: int, error: Exception | SystemExit) -> str:
    """Return the message for an exception that a task raised."""
    if isinstance(error, WriterError):
        return str(error)
    if isinstance(error, SystemExit):
        return (
            f"part {number}: it called sys.exit({error.code!r}): raise an error instead, or return"
        )
    return f"part {number}: {type(error).__name__}: {error}"


@lru_cache(maxsize=1)
def _unpacked(task: bytes) -> Task:
    loaded: Task = pickle.loads(task)  # noqa: S301 - pickled by the parent process
    return loaded


@contextmanager
def run_tasks(
    engine: Engine, task: Task, numbers: Sequence[int]
) -> Generator[Iterator[int], None, None]:
    """Run a task on an engine during a block, at whose end unfinished calls are cancelled.

    An iterator that is only dropped is closed when it is collected, which a traceback that refers to it
    prevents.
    """
    finished = engine.run(task, numbers)
    try:
        yield finished
    finally:
        close = getattr(finished, "close", None)  # which some iterators lack
        if close is not None:
            close()
