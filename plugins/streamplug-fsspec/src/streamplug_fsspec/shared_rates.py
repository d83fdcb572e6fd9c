"""Rates of requests that all processes of a user on a machine share, in a file that they map into memory.

A lock of the file is held for the microseconds of a change. The operating system releases that of a process
that dies, and one that is stopped within them is waited for shortly, so that it holds up nobody.
"""

from __future__ import annotations

import fcntl
import logging
import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from typing import TypeVar

from streamplug.errors import StreamplugError
from streamplug_fsspec.request_rate import FIELDS, RequestRate

T = TypeVar("T")
_LOG = logging.getLogger("streamplug.transfer")

_NUM_SLOTS, _SLOT_BYTES = 1024, 128
_MAX_PROBES = 16  # of slots of other places; if all these have limits, two share one
_FILE_NAME = "request-rates-1"  # the number is that of the layout
# The hash of a place comes first, then its rate, whose first field is the limit.
_LAYOUT, _HEAD, _HASH_BYTES = Struct(f"={len(FIELDS)}d"), Struct("=Qd"), 8
_values = attrgetter(*FIELDS)
_LOCK_TRIES, _LOCK_PAUSE_SECONDS = 40, 0.0005
_MAX_AHEAD_SECONDS = 3600.0  # of a time that this boot of the machine can have stored


class SharedRates:
    """The file with the rates; if it cannot be used, memory of this process alone."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._descriptor: int | None = None
        self._memory: mmap.mmap = self._open()

    def is_limited(self, place: int) -> bool:
        """Return whether the place of a hash has a limit; takes no lock."""
        # Nearly always the first slot tells it, without the generator.
        stored, floor = _HEAD.unpack_from(self._memory, place % _NUM_SLOTS * _SLOT_BYTES)
        if stored == place or not stored:
            return bool(floor)
        for offset in _offsets(place):
            stored, floor = _HEAD.unpack_from(self._memory, offset)
            if stored == place:
                return bool(floor)
        return False

    def read(self, place: int) -> RequestRate:
        """Return the rate of a place, without a lock."""
        return self._load(place, self._find(place))

    def change(self, place: int, make_change: Callable[[RequestRate, float], T]) -> T:
        """Return the result of a function that changes the rate of a place; it also takes the time."""
        with self._changing:
            is_held = self._lock()
            try:
                offset = self._find(place)
                rate, now = self._load(place, offset), time.monotonic()
                result = make_change(rate, now)
                rate.updated_at = now
                values = _values(rate)
                _HEAD.pack_into(self._memory, offset, place, rate.floor)
                _LAYOUT.pack_into(self._memory, offset + _HASH_BYTES, *values)
            finally:
                if is_held:
                    fcntl.flock(self._descriptor or 0, fcntl.LOCK_UN)
        return result

    def _find(self, place: int) -> int:
        """Return the offset of a place, or of the first slot that has no limit."""
        free = None
        for offset in _offsets(place):
            stored, floor = _HEAD.unpack_from(self._memory, offset)
            if stored == place:
                return offset
            if free is None and not floor:
                free = offset
        return next(_offsets(place)) if free is None else free

    def _load(self, place: int, offset: int) -> RequestRate:
        if _HEAD.unpack_from(self._memory, offset)[0] != place:
            return RequestRate()
        rate = RequestRate(*_LAYOUT.unpack_from(self._memory, offset + _HASH_BYTES))
        return rate if _is_valid(rate, time.monotonic()) else RequestRate()

    def close(self) -> None:
        """Close the file in a forked process: its lock would be that of the parent, too."""
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _lock(self) -> bool:
        if self._descriptor is None:
            return False
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_SECONDS)
            except OSError:  # a file system without locks: a change may be lost
                return False
            else:
                return True
        return False  # its holder is stopped

    def _open(self) -> mmap.mmap:
        from streamplug.transfer import make_temp_root

        size = _NUM_SLOTS * _SLOT_BYTES
        try:
            path = make_temp_root() / _FILE_NAME
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o600)
            os.ftruncate(self._descriptor, size)
            return mmap.mmap(self._descriptor, size)
        except (OSError, StreamplugError) as error:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            _LOG.warning(
                "%s; processes of this machine do not slow down together where a server refuses requests",
                error,
            )
            return mmap.mmap(-1, size)


def hash_place(place: str) -> int:
    """Return the hash of a place, which is not 0."""
    digest = blake2b(place.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def _offsets(place: int) -> Iterator[int]:
    return ((place + number) % _NUM_SLOTS * _SLOT_BYTES for number in range(_MAX_PROBES))


def _is_valid(rate: RequestRate, now: float) -> bool:
    """Return whether a rate was stored whole, and since the machine was started."""
    values = _values(rate)
    latest = max(rate.cut_at, rate.free_at, rate.paused_until)
    return (
        all(map(math.isfinite, values))
        and min(values) >= 0.0
        and rate.updated_at <= now
        and latest <= now + _MAX_AHEAD_SECONDS
    )


_opened: list[SharedRates] = []


def shared_rates() -> SharedRates:
    """Return the rates, opening them on first use in a process."""
    if not _opened:  # that two threads open them does no harm
        _opened.append(SharedRates())
    return _opened[0]


def _after_fork() -> None:
    while _opened:
        _opened.pop().close()


os.register_at_fork(after_in_child=_after_fork)
