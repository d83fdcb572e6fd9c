"""How processes that measure samples and count bins begin."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from streamplug_budget import processes

from tests.warm_python import CORE, Program

_RUN_PYTHON = processes._run_python
_MODULES = (*CORE, "streamplug_budget", "hypothesis", "pytest")


def _run_warm(code: str, sent: bytes) -> subprocess.CompletedProcess[bytes]:
    with Program(["-c", code], _MODULES, stdin=sent) as program:
        answer = program.stdout.buffer.read()
        return subprocess.CompletedProcess([], program.finish().returncode, answer)


@pytest.fixture(scope="session", autouse=True)
def _warm_processes() -> Iterator[None]:
    """Let them begin with what the modules of their functions import, which are tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_run_python", _run_warm)
        yield


@pytest.fixture
def new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let them begin as those of users do."""
    monkeypatch.setattr(processes, "_run_python", _RUN_PYTHON)
