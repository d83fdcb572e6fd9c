"""Where the index of another library says that members begin: so that their headers can be read at once.

Nothing of it is believed: whoever walks through an archive finds each header where the one before says, and
takes it from here if it was read already.

An index of NVIDIA DALI (``wds2idx``) is text: ``v1.2`` and the number of samples; then a line for each, of
extension, place, size and name of each of its files in turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamplug.interfaces import ScanFile
from streamplug_webdataset.members import BLOCK, Read

_VERSIONS = ("v1.1", "v1.2")
_FAR = 1 << 20
"""Bytes between headers, on average, from which on reading each by itself is sooner than all there is."""


class Hints:
    """Reads an archive, whose headers it has read where an index says that they are."""

    def __init__(self, file: ScanFile, places: list[int]) -> None:
        """Read the headers of members whose content begins at some places."""
        self._file = file
        starts = [place - BLOCK for place in places if BLOCK <= place <= file.size]
        self._outside = len(places) - len(starts)
        self._known = dict(zip(starts, file.read_many(starts, BLOCK)))

    @property
    def unused(self) -> int:
        """How many of the places in the index no header turned out to be at."""
        return self._outside + len(self._known)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from one place to another, as `ScanFile.read` does."""
        if stop - start == BLOCK and start in self._known:
            return self._known.pop(start)
        return self._file.read(start, stop)


def hints_of(file: ScanFile) -> Hints | None:
    """Return what the index beside an archive is good for; None if there is none, or it saves nothing."""
    name = file.name.rpartition("/")[2]
    text = file.beside(f"{name.partition('.')[0]}.idx")
    places = list(_places(text)) if text is not None else []
    if not places or len(places) * _FAR > file.size:
        return None
    return Hints(file, places)


def _places(text: bytes) -> Iterator[int]:
    head, *lines = text.decode("utf-8", "replace").splitlines() or [""]
    version = head.partition(" ")[0]
    if version not in _VERSIONS:
        return
    step = 4 if version == "v1.2" else 3
    for line in lines:
        for place in line.split(" ")[1::step]:
            if place.isdecimal() and len(place) < 18:
                yield int(place)


def reading(file: ScanFile, *, indexed: bool) -> tuple[Read, Hints | None]:
    """Return how an archive is read, by an index of its members if there should be one."""
    hints = hints_of(file) if indexed else None
    return (file.read if hints is None else hints.read), hints
