"""Where the index of another library says that members begin: so that their headers can be read at once.

Nothing of it is believed: whoever walks through an archive finds each header where the one before says, and
takes it from here if it was read already.

An index of NVIDIA DALI (``wds2idx``) is text: ``v1.2`` and the number of samples; then a line for each, of
extension, place, size and name of each of its files in turn. One of Megatron-Energon (``x.tar.idx``) has a
little-endian uint64 for each sample: where its first member begins, and one more for where the last one ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamplug.interfaces import ScanSource
from streamplug_webdataset.members import BLOCK, Read, next_header

_VERSIONS = ("v1.1", "v1.2")
_MIN_HEADER_DISTANCE_BYTES = 1 << 20
"""Bytes between headers, on average, at and above which headers are read one by one."""

_PIECE = 3 * BLOCK
"""Bytes that are read of each header: most extensions, with the header that they are of, are no longer."""

_ROUNDS = 64
"""Files of a sample whose headers are looked for, one after the other but for all samples at once."""


class Hints:
    """Reads an archive, some of whose headers it has read before.

    Attributes:
        samples: How many samples the index says there are; None if it does not say.
    """

    def __init__(self, file: ScanSource, *, wrong: int = 0, samples: int | None = None) -> None:
        """Know nothing of a file but that so many places of its index cannot be right."""
        self.samples = samples
        self._file, self._wrong = file, wrong
        self._known: dict[int, bytes] = {}
        self._last = 0, b""  # where what was asked for last begins, and some of it

    @property
    def unused(self) -> int:
        """How many of the places in the index no header turned out to be at."""
        return self._wrong + len(self._known)

    def look(self, starts: Sequence[int]) -> None:
        """Read the headers at some places."""
        within = [start for start in starts if 0 <= start <= self._file.size - BLOCK]
        self._wrong += len(starts) - len(within)
        self._known.update(zip(within, self._file.read_blocks(within, _PIECE)))

    def follow(self, starts: Sequence[int]) -> None:
        """Read the headers at the beginnings of samples, and then those of their further files."""
        self.look(starts)
        ends = starts
        for _ in range(_ROUNDS):
            nexts = (next_header(self._known[at], at) for at in ends if at in self._known)
            ends = [
                at
                for at in nexts
                if at is not None and at not in self._known and at <= self._file.size - BLOCK
            ]
            if not ends:
                return
            self.look(ends)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from one place to another, as `ScanSource.read` does."""
        if stop - start == BLOCK and start in self._known:
            self._last = start, self._known.pop(start)
        begin, piece = self._last
        if begin <= start and stop <= begin + len(piece):
            return piece[start - begin : stop - begin]
        return self._file.read(start, stop)


def hints_of(file: ScanSource) -> Hints | None:
    """Return what the index beside an archive is good for; None if there is none, or it saves nothing."""
    name = file.name.rpartition("/")[2]
    text = file.read_sibling(f"{name.partition('.')[0]}.idx")
    places = list(_places(text)) if text is not None else []
    if places and len(places) * _MIN_HEADER_DISTANCE_BYTES <= file.size:
        hints = Hints(file)
        hints.look([place - BLOCK for place in places])
        return hints
    data = file.read_sibling(f"{name}.idx") if name.endswith(".tar") and not places else None
    return None if data is None else _by_samples(file, data)


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


def _by_samples(file: ScanSource, data: bytes) -> Hints:
    """Return what an index of Energon is good for; one that cannot be right counts as a wrong place."""
    places = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    ascending = bool((places[1:] > places[:-1]).all())
    if not len(places) or len(data) % 8 or not ascending or int(places[-1]) > file.size:
        return Hints(file, wrong=1)
    hints = Hints(file, samples=len(places) - 1)
    if hints.samples and hints.samples * _MIN_HEADER_DISTANCE_BYTES <= file.size:
        hints.follow([int(place) for place in places])
    return hints


def reading(file: ScanSource, *, indexed: bool) -> tuple[Read, Hints | None]:
    """Return how an archive is read, by an index of its members if there should be one."""
    hints = hints_of(file) if indexed else None
    return (file.read if hints is None else hints.read), hints
