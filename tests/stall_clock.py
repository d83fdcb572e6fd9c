"""A clock of stall timeouts that runs only while a test lets something hang, however busy the machine is."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from streamplug.transfer.stall_timeout import StalledError

_MODULE = "streamplug.transfer.stall_timeout"


class StallClock:
    """Stands still unless something hangs that was not given up, so that what is slow is never given up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds, self._hanging, self._lock = 0.0, list[str](), threading.Lock()
        monkeypatch.setattr(f"{_MODULE}.time", SimpleNamespace(monotonic=self._tell))
        monkeypatch.setattr(f"{_MODULE}.StalledError", self._give_up)

    def hang(self, name: str) -> None:
        """Let time pass until a request is given up whose URL contains `name`."""
        with self._lock:
            self._hanging.append(name)

    def _tell(self) -> float:
        with self._lock:
            self._seconds += 1000.0 * bool(self._hanging)
            return self._seconds

    def _give_up(self, message: str) -> StalledError:
        with self._lock:
            for name in self._hanging:
                if name in message.partition(": ")[0]:
                    self._hanging.remove(name)
                    break
        return StalledError(message)
