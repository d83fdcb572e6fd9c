"""Dask: calls tasks on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine
from streamplug.interfaces.engine import Task, describe_task_error, pack_task, run_packed_task

_MISSING = "the engine 'dask' needs distributed, in the version that the cluster has: pip install distributed"


class Dask(Engine):
    """Calls tasks on the workers of a cluster of dask.distributed.

    A worker that is lost is replaced by others, as often as the cluster's setting
    ``distributed.scheduler.allowed-failures`` says.
    """

    def __init__(self, address: str | None = None, *, client: Any = None) -> None:
        """Use a cluster.

        Args:
            address: That of its scheduler, such as ``tcp://10.0.0.1:8786``; None for the client that this
                process has already, or what the settings of Dask say.
            client: A `distributed.Client` in its place.

        Raises:
            ConfigError: If both are given.
        """
        if address is not None and client is not None:
            raise ConfigError("Dask(): give an address or a client, not both")
        self._address, self._client = address, client

    @classmethod
    def from_spec(cls, argument: str | None) -> Dask:
        return cls(argument)

    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task for each number; leaving the iterator cancels what is not done."""
        data = pack_task(task)
        if not numbers:
            return
        with self._connected() as client:
            from distributed import as_completed

            # Not scattered: what is scattered is lost with the worker that has it.
            calls = client.map(run_packed_task, numbers, task=data, pure=False)
            waiting = dict(zip(calls, numbers))
            try:
                for call in as_completed(calls, loop=client.loop):
                    number = waiting.pop(call)
                    try:
                        told = call.result()
                    except Exception as error:  # its own, such as workers that were lost over it
                        raise WriterError(describe_task_error(number, error)) from error
                    call.release()
                    if told is not None:
                        raise WriterError(told)
                    yield number
            finally:
                client.cancel(list(waiting), force=True)

    @contextmanager
    def _connected(self) -> Generator[Any, None, None]:
        try:
            from distributed import Client
        except ImportError as error:
            raise ConfigError(_MISSING) from error
        client = self._client
        if client is None and self._address is None:
            with suppress(ValueError):  # there is none
                client = Client.current()
        if client is not None:
            yield client
            return
        try:
            client = Client(self._address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConfigError(f"engine dask:{self._address or ''}: {error}") from error
        with client:
            yield client
