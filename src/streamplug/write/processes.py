"""Runs a task for many numbers in several processes; one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from streamplug.errors import ConfigError, WriterError

_DEATHS = 3
"""How many processes may die over one number; with more memory or time it might have been done."""
_END_SECONDS = 5.0


def in_processes(
    task: Callable[[int], object], numbers: Sequence[int], processes: int
) -> Iterator[int]:
    """Call a task for each number; yield those that are done, in the order in which they end.

    Leaving the iterator ends the processes at once.

    Args:
        task: What to call; it is pickled, and processes are spawned.
        numbers: What with.
        processes: How many calls at once.

    Raises:
        ConfigError: If the task cannot be pickled.
        WriterError: If a call raises, or processes die over it again and again.
    """
    pickled = _pickled(task)
    todo, deaths = deque(numbers), Counter[int]()
    workers: list[_Worker] = []
    try:
        while todo or workers:
            while todo and len(workers) < processes:
                workers.append(_Worker(pickled, todo.popleft()))
            ready = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in ready]:
                number = worker.number
                done = worker.answer()
                if done and todo:
                    worker.ask(todo.popleft())
                else:
                    workers.remove(worker)
                    worker.end()
                if done:
                    yield number
                    continue
                todo.appendleft(number)
                deaths[number] += 1
                if deaths[number] == _DEATHS:
                    raise _killer(number, worker.process.exitcode)
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.end()


def _pickled(task: Callable[[int], object]) -> bytes:
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{error}; other processes can only call functions of modules, so define it at the top level "
            "of one, or pass processes=0"
        ) from error


def _killer(number: int, exitcode: int | None) -> WriterError:
    return WriterError(
        f"part {number}: {_DEATHS} processes have died over it, the last with exit code {exitcode}; -9 "
        "often means that memory ran out: use fewer processes, or smaller parts"
    )


class _Worker:
    """A process that does one thing after the other.

    Attributes:
        connection: Where its answers come from.
        process: It.
        number: What it was asked for last.
    """

    def __init__(self, pickled: bytes, number: int) -> None:
        """Start it, and ask for something."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, pickled), name="streamplug-write", daemon=True
        )
        self.process.start()
        theirs.close()
        self.ask(number)

    def ask(self, number: int) -> None:
        self.number = number
        with suppress(OSError):  # it has died; that is seen when its answer is waited for
            self.connection.send(number)

    def answer(self) -> bool:
        """Return whether it has done what it was asked for; else it has died.

        Raises:
            WriterError: What the call raised.
        """
        try:
            told = self.connection.recv()
        except (EOFError, OSError):
            return False
        if told is not None:
            raise WriterError(told)
        return True

    def end(self) -> None:
        self.connection.close()  # at which it ends, if it has not already
        self.process.join(_END_SECONDS)


def _serve(connection: Connection[Any, Any], pickled: bytes) -> None:
    """Do what is asked for until nobody asks any more."""
    Thread(target=_end_with_parent, name="streamplug-orphan", daemon=True).start()
    task: Callable[[int], object] = pickle.loads(pickled)  # noqa: S301 - made by our own parent
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            number = connection.recv()
            told = None
            try:
                task(number)
            except WriterError as error:
                told = str(error)
            except Exception as error:  # noqa: BLE001 - it is the parent's to raise
                told = f"part {number}: {type(error).__name__}: {error}"
            connection.send(told)


def _end_with_parent() -> None:
    """End this process when its parent has: another run may soon write the same part."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
