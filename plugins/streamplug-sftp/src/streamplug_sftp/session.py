"""SSH connection with its event loop thread."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from streamplug.plugin_kit import Cancelled, Scope, current

Result = TypeVar("Result")


class SftpSession:
    """One connection with one SFTP client, shared by the threads of a process.

    Attributes:
        finalizer: Stops the session when its storage is collected.
    """

    finalizer: weakref.finalize[..., Any]

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Connect.

        Args:
            options: The arguments of `asyncssh.connect`.
        """
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="streamplug-sftp", daemon=True
        )
        self._thread.start()
        self._connection: Any = None
        self._client: Any = None
        # A coroutine submitted after `_close` would never end.
        self._lock, self._stopped = threading.Lock(), False
        try:
            self.run(self._connect(options))
        except BaseException:
            self.stop()
            raise

    async def _connect(self, options: Mapping[str, Any]) -> None:
        import asyncssh

        self._connection = await asyncssh.connect(**options)
        self._client = await asyncio.wait_for(
            self._connection.start_sftp_client(), options["connect_timeout"]
        )

    @property
    def client(self) -> Any:
        """The SFTP client, for coroutines passed to `run`."""
        return self._client

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread of the event loop and return its result.

        Raises:
            Cancelled: If the consumer stops, which cancels the coroutine.
        """
        scope = current() or Scope()
        with self._lock:
            if self._stopped:  # by another thread
                work.close()
                raise ConnectionAbortedError
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            with scope.on_stop(future.cancel):
                return future.result()
        except CancelledError:
            if scope.stopped:
                raise Cancelled from None
            raise
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Close the connection and stop the thread; several threads may call this."""
        if self._process != os.getpid():
            return
        if threading.current_thread() is self._thread:  # collected by its own thread
            self._loop.call_soon(self._loop.stop)
            return
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        if self._loop.is_running():
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._connection.wait_closed(), 2)
        # Cancels the calls of other threads that are still in flight.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
