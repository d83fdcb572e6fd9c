"""Engine that runs tasks in processes of this machine and replaces those that die."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine, Task
from streamplug.plugin_kit import end_with_parent
from streamplug_tools.tasks import describe_task_error, pack_task, run_packed_task

_DEATHS = 3
"""Process deaths over one number until the run fails; fewer may be caused by a temporary lack of memory."""
_END_SECONDS = 5.0
_CONTEXT = multiprocessing.get_context("spawn")  # forks of a process with threads may hang


class Local(Engine):
    """Runs tasks in processes of this machine, or in this process."""

    def __init__(self, processes: int | None = None) -> None:
        """Set the number of processes: None for one per CPU core, 0 for none but this one."""
        if processes is not None and processes < 0:
            raise ConfigError(f"processes={processes}: must be 0 or more")
        self._processes = (os.cpu_count() or 1) if processes is None else processes

    @classmethod
    def from_spec(cls, argument: str | None) -> Local:
        try:
            processes = None if argument is None else int(argument)
        except ValueError:
            raise ConfigError(
                f"engine local:{argument}: give the number of processes, such as local:4"
            ) from None
        return cls(processes)

    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task for each number; closing the iterator terminates the processes."""
        if self._processes:
            yield from _in_processes(pack_task(task), numbers, min(self._processes, len(numbers)))
            return
        for number in numbers:
            try:
                task(number)
            except (Exception, SystemExit) as error:
                raise WriterError(describe_task_error(number, error)) from error
            yield number


def _in_processes(task: bytes, numbers: Sequence[int], processes: int) -> Iterator[int]:
    todo, deaths = deque(numbers), Counter[int]()
    workers: list[_Worker] = []
    try:
        while todo or workers:
            while todo and len(workers) < processes:
                workers.append(_Worker(task, todo.popleft()))
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


def _killer(number: int, exitcode: int | None) -> WriterError:
    hint = "-9 often means that memory ran out: use fewer processes, or smaller parts"
    if exitcode == 1:
        hint = (
            "1 often means that the processes import the script, which then starts processes: put its code "
            'under `if __name__ == "__main__":`'
        )
    return WriterError(
        f"part {number}: {_DEATHS} processes have died over it, the last with exit code {exitcode}; {hint}"
    )


class _Worker:
    """A process that runs one task at a time; `number` is the last number sent to it."""

    def __init__(self, task: bytes, number: int) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(
            target=_serve, args=(theirs, task), name="streamplug-write", daemon=True
        )
        self.process.start()
        theirs.close()
        self.ask(number)

    def ask(self, number: int) -> None:
        self.number = number
        with suppress(OSError):  # it has died, which answer() will detect
            self.connection.send(number)

    def answer(self) -> bool:
        """Return whether the task is done; False if the process has died."""
        try:
            failure = self.connection.recv()
        except (EOFError, OSError):
            return False
        if failure is not None:
            raise WriterError(failure)
        return True

    def end(self) -> None:
        self.connection.close()  # ends the process
        self.process.join(_END_SECONDS)


def _serve(connection: Connection[Any, Any], task: bytes) -> None:
    end_with_parent()  # another run may soon write the same part
    # The parent has ended, or tells of the interrupt, which came to all processes of the terminal.
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            number = connection.recv()
            connection.send(run_packed_task(number, task))
