"""What all tests of the core and of the plugins run under."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))

# Coverage would follow every new thread. CPython 3.11 cannot have two threads begin that at the same time:
# one then dies before it does anything, and whoever waits for it waits for ever.
threading.settrace(None)

# The same examples in each run, however busy the machine is; `tox -e soak` draws others, and more.
settings.register_profile(
    "steady",
    derandomize=not SOAK,
    max_examples=100 if SOAK else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


# What the processes of a fork server need not import for themselves; it starts when it is first used.
multiprocessing.set_forkserver_preload(
    [
        "streamplug.dataset",
        "fsspec.implementations.http",
        "torch.utils.data",
        # Where torch is old, it makes a directory that only the server can remove.
        "torch.distributed.nn",
        "streamplug.adapters.torch",
        "hypothesis",
        "pytest",
    ]
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep modules and tests, which are there to the end, out of the garbage collector's way."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """Save what coverage measured: pytest-xdist kills a process of tests that takes 10 s to end."""
    measurement = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if measurement is not None:
        measurement.stop()
        measurement.save()


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep caches and temporary files from processes of tests at the same time, and from later runs.

    Caches are found by URL, and servers of tests often have the same: ports are few.
    """
    # While the temporary directory is the system's: multiprocessing removes its own after this ends.
    cache = tmp_path_factory.mktemp("user-cache")
    multiprocessing.util.get_temp_dir()
    with (
        # Not in another: the names of sockets have to be short.
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.delenv("STREAMPLUG_CACHE_DIR", raising=False)
        Path(temporary).chmod(0o755)  # for tests that give up being root
        patch.setenv("TMPDIR", temporary)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks() -> Iterator[None]:
    """Sync nothing, which takes minutes in all; tests of power losses record what would be synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt the processes of tests, also where the tests run in a shell's background."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_workers() -> Iterator[None]:
    """Let torch's own loaders wait a second for each of their workers, which may block after an error."""
    loaders = sys.modules.get("torch.utils.data._utils")
    with pytest.MonkeyPatch.context() as patch:
        if loaders is not None:
            patch.setattr(loaders, "MP_STATUS_CHECK_INTERVAL", 1.0)
        yield
