"""How tests start processes that inherit nothing: it proves the same, and costs a tenth, from a fork server.

A spawned process and one from a fork server are handed the same pickles. The one imports torch for itself,
which takes seconds; the server has done it, see conftest.py. With STREAMPLUG_TEST_SOAK in the environment
processes are spawned.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
_HAS_SERVER = "forkserver" in multiprocessing.get_all_start_methods()

SPAWN = "spawn" if SOAK or not _HAS_SERVER else "forkserver"
METHODS = ["fork", pytest.param(SPAWN, id="spawn")]
EVERY_METHOD = ["fork", "forkserver", *(["spawn"] if SOAK else [])]


class _Environment:
    """The environment of the process that pickles it, which that which unpickles it then has."""

    def __reduce__(self) -> tuple[Callable[[dict[str, str]], None], tuple[dict[str, str]]]:
        return _set_environment, (dict(os.environ),)


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # TMPDIR may be another


_CONTEXT: Any = multiprocessing.get_context(SPAWN)


class _Process(_CONTEXT.Process):  # type: ignore[misc]
    def __getstate__(self) -> dict[str, Any]:
        # Unpickled first: what follows imports modules.
        return {"_environment": _Environment(), **self.__dict__}


class SpawnContext(type(_CONTEXT)):  # type: ignore[misc]
    """In place of the context ``"spawn"`` in code that spawns processes itself.

    Like spawned processes, these have the environment of their parent; those of a fork server have that in
    which the server began.
    """

    Process = _Process


def in_fork(work: Callable[[], int | None]) -> int:
    """Return the exit status of `work` in a forked child, 0 for None; one that hangs is killed."""
    child = os.fork()
    if not child:
        threading.Timer(30, os._exit, [3]).start()
        try:
            os._exit(work() or 0)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
