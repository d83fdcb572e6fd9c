"""Engine that runs tasks on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from streamplug_tools import describe_task_error, pack_task, run_packed_task

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine, Task
from streamplug_ray.cluster import connected

_TASKS_PER_CPU = 2
"""Tasks submitted per CPU; pending ones make an autoscaling cluster grow."""
_MIN_PENDING_TASKS = 16


class Ray(Engine):
    """Runs tasks as Ray remote functions; Ray retries those whose worker is lost."""

    def __init__(
        self, address: str | None = None, *, num_cpus: float = 1, max_retries: int = 3
    ) -> None:
        """Set the cluster; connects in `run`.

        Args:
            address: Address as for `ray.init`, such as ``auto`` or ``ray://10.0.0.1:10001``; None is the
                cluster that this process is connected to, that of RAY_ADDRESS, or a new one on this machine.
            num_cpus: CPUs that Ray reserves for each task.
            max_retries: Retries of a task whose worker was lost.

        Raises:
            ConfigError: If a number is invalid.
        """
        if num_cpus < 0 or max_retries < 0:
            raise ConfigError(f"num_cpus={num_cpus}, max_retries={max_retries}: must be 0 or more")
        self._address, self._num_cpus, self._max_retries = address, num_cpus, max_retries

    @classmethod
    def from_spec(cls, argument: str | None) -> Ray:
        return cls(argument)

    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Run a task for each number; closing the iterator cancels unfinished ones."""
        data = pack_task(task)
        if not numbers:
            return
        with connected(self._address, "the engine 'ray'") as ray:
            sent = ray.put(data)
            call = ray.remote(num_cpus=self._num_cpus, max_retries=self._max_retries)(
                run_packed_task
            )
            todo = iter(numbers)
            waiting: dict[Any, int] = {}
            try:
                while True:
                    free = self._pending_limit(ray) - len(waiting)
                    waiting |= {call.remote(n, sent): n for n in islice(todo, max(free, 0))}
                    if not waiting:
                        return
                    [ended], _ = ray.wait(list(waiting), num_returns=1)
                    number = waiting.pop(ended)
                    message = _error_message(ray, ended, number)
                    if message is not None:
                        raise WriterError(message)
                    yield number
            finally:
                for ref in waiting:
                    with suppress(ray.exceptions.RayError):
                        ray.cancel(ref, force=True)

    @staticmethod
    def _pending_limit(ray: Any) -> int:
        return max(_TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 0)), _MIN_PENDING_TASKS)


def _error_message(ray: Any, ended: Any, number: int) -> str | None:
    try:
        message: str | None = ray.get(ended)
    except ray.exceptions.RayError as error:  # retries are exhausted
        return describe_task_error(number, error)
    return message
