"""What all tests of the core and of the plugins run under."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))

# Coverage would follow every new thread. CPython 3.11 cannot have two threads begin that at the same time:
# one then dies before it does anything, and whoever waits for it waits for ever.
threading.settrace(None)  # type: ignore[arg-type]  # typeshed has no None, which ends tracing

# The same examples in each run, however busy the machine is; `tox -e soak` draws others, and more.
settings.register_profile(
    "steady",
    derandomize=not SOAK,
    max_examples=100 if SOAK else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

# Coverage makes tests take up to twice the time, and these run few lines of the core that no other test runs.
UNMEASURED = re.compile(
    r"tests/(benchmarks|faults|integration|repo)/|plugins/(?!streamplug-(budget|folder|text|webdataset)/)"
)
_coverage = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
_children = pytest.MonkeyPatch()
_stopped = pytest.StashKey[bool]()


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Have coverage follow the tests that are measured, and the processes that they start."""
    stop = UNMEASURED.match(item.nodeid) is not None
    if _coverage is None or stop == item.config.stash.get(_stopped, False):
        return
    item.config.stash[_stopped] = stop
    if not stop:
        _children.undo()
        _coverage.start()
        threading.settrace(None)  # type: ignore[arg-type]  # as above
    else:
        _coverage.stop()
        for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
            _children.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def _user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have what is kept of data sets that are read in place go with the other files of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        patch.delenv("STREAMPLUG_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks() -> Iterator[None]:
    """Sync nothing, which takes minutes in all; tests of power losses record what would be synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
