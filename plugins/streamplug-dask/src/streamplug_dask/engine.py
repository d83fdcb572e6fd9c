"""Engine that runs tasks on a Dask cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from streamplug_tools import describe_task_error, pack_task, run_packed_task

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine, Task

_MISSING = "the engine 'dask' needs distributed, in the version that the cluster has: pip install distributed"


class Dask(Engine):
    """Runs tasks on the workers of a dask.distributed cluster.

    Tasks of a lost worker are retried as often as the cluster's setting
    ``distributed.scheduler.allowed-failures`` permits.
    """

    def __init__(self, address: str | None = None, *, client: Any = None) -> None:
        """Set the cluster; connects in `run`.

        Args:
            address: Address of the scheduler, such as ``tcp://10.0.0.1:8786``; None is the current client of
                this process, or the one from Dask's configuration.
            client: A `distributed.Client` to use instead.

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
        """Run a task for each number; closing the iterator cancels unfinished ones."""
        data = pack_task(task)
        if not numbers:
            return
        with self._connected() as client:
            from distributed import as_completed

            # Not scattered: scattered data is lost with its worker.
            calls = client.map(run_packed_task, numbers, task=data, pure=False)
            waiting = dict(zip(calls, numbers))
            try:
                for call in as_completed(calls, loop=client.loop):
                    number = waiting.pop(call)
                    try:
                        message = call.result()
                    except Exception as error:  # errors of Dask, such as killed workers
                        raise WriterError(describe_task_error(number, error)) from error
                    call.release()
                    if message is not None:
                        raise WriterError(message)
                    yield number
            finally:
                # A client that was closed meanwhile cannot cancel, and has no calls any more.
                with suppress(Exception):
                    client.cancel(list(waiting), force=True)

    @contextmanager
    def _connected(self) -> Generator[Any, None, None]:
        try:
            from distributed import Client
        except ImportError as error:
            raise ConfigError(_MISSING) from error
        client = self._client
        if client is None and self._address is None:
            with suppress(ValueError):  # there is no current client
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
