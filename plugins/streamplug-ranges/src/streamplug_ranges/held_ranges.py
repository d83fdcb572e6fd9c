"""Byte ranges of a file that are held in memory while somebody needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event, RLock

from streamplug.plugin_kit import check
from streamplug.types import Bytes1D, Int64

_CANCEL_POLL_SECONDS = 1.0


class HeldPart:
    """Ranges that are fetched together, and held until all of their users have released them."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.users = 1
        self.ended = Event()
        # Start, stop and bytes of each range; none if they could not be fetched.
        self.ranges: Sequence[tuple[int, int, Bytes1D]] = ()


class HeldRanges:
    """Parts of one file that are in memory, each fetched by the first of several users. Thread-safe."""

    def __init__(self) -> None:
        # Reentrant: garbage collection may end a loop, which releases parts, while this thread holds it.
        self._lock = RLock()
        self._parts: dict[int, HeldPart] = {}

    def hold(
        self,
        wanted: Mapping[int, Int64],
        fetch: Callable[[Sequence[Int64]], Sequence[list[Bytes1D]]],
    ) -> list[HeldPart]:
        """Hold parts of the file, fetching at once those that are not held, until they are released.

        A part that another user failed to fetch is not held, which is no error.

        Args:
            wanted: Byte ranges of each part, by its key.
            fetch: Returns the bytes of the ranges of each part.

        Raises:
            StreamplugError: The error of `fetch`; then nothing is held.
        """
        mine: list[HeldPart] = []
        parts: list[HeldPart] = []
        with self._lock:
            for key in wanted:
                part = self._parts.get(key)
                if part is None:
                    part = self._parts[key] = HeldPart(key)
                    mine.append(part)
                else:
                    part.users += 1
                parts.append(part)
        try:
            self._fetch(mine, wanted, fetch)
            for part in parts:
                while not part.ended.wait(_CANCEL_POLL_SECONDS):
                    check()
        except BaseException:
            self.release(parts)
            raise
        return parts

    def _fetch(
        self,
        mine: Sequence[HeldPart],
        wanted: Mapping[int, Int64],
        fetch: Callable[[Sequence[Int64]], Sequence[list[Bytes1D]]],
    ) -> None:
        try:
            fetched = fetch([wanted[part.key] for part in mine]) if mine else ()
            for part, of_part in zip(mine, fetched):
                bounds = wanted[part.key].tolist()
                part.ranges = [(*bound, data) for bound, data in zip(bounds, of_part)]
        except BaseException:
            with self._lock:  # so that the next user fetches them again
                for part in mine:
                    del self._parts[part.key]
            raise
        finally:
            for part in mine:
                part.ended.set()

    def release(self, parts: Sequence[HeldPart]) -> None:
        """Free parts, unless others need them."""
        with self._lock:
            for part in parts:
                part.users -= 1
                if not part.users and self._parts.get(part.key) is part:
                    del self._parts[part.key]

    def has(self, key: int) -> bool:
        """Return whether a part is held, or being fetched."""
        return key in self._parts

    def find(self, start: int, stop: int) -> Bytes1D | None:
        """Return the bytes of a range if they are held, else None."""
        with self._lock:
            parts = list(self._parts.values())
        for part in parts:
            for first, last, data in part.ranges:
                if first <= start and stop <= last:
                    return data[start - first : stop - first]
        return None
