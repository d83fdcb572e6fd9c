"""Outages of storages: how long reading waits for one that is away, and what it says meanwhile."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from threading import Lock
from urllib.parse import urlsplit

from streamplug.errors import ObjectReplaced, Transient
from streamplug.plugin import local_path

_LOG = logging.getLogger("streamplug.transfer")
DOWNLOAD_PATIENCE_SECONDS = 600.0  # default patience while reading
_WARNING_SECONDS = 60.0  # minimum time between two warnings about one storage


@dataclass(frozen=True, slots=True)
class Patience:
    """How long reading waits for a storage that is away.

    Attributes:
        place: Server or bucket, without credentials; its failures are one outage, whoever reads from it.
        seconds: Time from the first failure on; 0 is none.
    """

    place: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, url: str, seconds: float) -> Patience:
        """Return the patience with the storage of a URL without credentials."""
        parts = urlsplit(url)
        is_local = local_path(url) is not None
        return cls(url if is_local else f"{parts.scheme}://{parts.netloc}", seconds)

    def covers(self, error: Exception) -> bool:
        """Return whether an error is waited out: it may be that of a storage that is away."""
        is_outage = isinstance(error, Transient) and not isinstance(error, ObjectReplaced)
        return self.seconds > 0 and is_outage


NO_PATIENCE = Patience()


class Outage:
    """What the threads of this process know about a storage that may be away.

    Attributes:
        since: Time of the first failure after the last success; None if there is none.
    """

    def __init__(self, place: str) -> None:
        self.since: float | None = None
        self._place, self._lock = place, Lock()
        self._failed = self._warned = float("-inf")
        self._is_announced = False

    def fail(self, patience: float) -> float:
        """Note a failed attempt; return the time of the first failure.

        What was not tried for as long as the `patience` in seconds is not known to have been away.
        """
        now = time.monotonic()
        with self._lock:
            if self.since is None or now - self._failed > patience:
                self.since = now
            self._failed = now
            return self.since

    def warn(self, since: float, until: float, error: Exception) -> None:
        """Warn of an outage that is waited for until a time, at most once a minute."""
        now = time.monotonic()
        with self._lock:
            if now - self._warned < _WARNING_SECONDS:
                return
            self._warned, self._is_announced = now, True
        _LOG.warning(
            "%s has been away for %s, and is waited for up to %s more (download_patience=): %s",
            self._place,
            show_seconds(now - since),
            show_seconds(until - now),
            error,
        )

    def end(self) -> None:
        """Note a success."""
        since = self.since
        if since is None:  # without the lock: nearly always
            return
        with self._lock:
            self.since = None
            is_announced, self._is_announced = self._is_announced, False
        if is_announced:
            away = show_seconds(time.monotonic() - since)
            _LOG.warning("%s answers again, after %s", self._place, away)


_outages: dict[str, Outage] = {}


def outage_of(place: str) -> Outage:
    """Return what this process knows about a storage."""
    return _outages.get(place) or _outages.setdefault(place, Outage(place))


def show_seconds(seconds: float) -> str:
    """Return a time as text, in minutes if it is a minute or more."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


# A thread of the parent may have held a lock of one of them.
os.register_at_fork(after_in_child=_outages.clear)
