"""Reading of tar headers ahead, many per request, at the offsets in an index of another library.

The offsets are only used to prefetch: the scan of an archive still finds each header at the end of the
previous member, and takes it from here if it was read already.

An index of NVIDIA DALI (``wds2idx``) is text: a line of ``v1.2`` and the number of samples, then one line per
sample with the extension, offset, size and name of each of its files. An index of Megatron-Energon
(``x.tar.idx``) has one little-endian uint64 per sample, the offset of its first member, and the end of the
last sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from streamplug_files import ScanSource

from streamplug_webdataset.members import BLOCK, Read, next_header

_VERSIONS = ("v1.1", "v1.2")
_MIN_HEADER_DISTANCE_BYTES = 1 << 20
"""Average distance of headers in bytes from which on an index saves reads."""

_HEADER_READ_BYTES = 3 * BLOCK
"""Bytes read per header: enough for most extended headers and the header that follows them."""

_MAX_FILES_PER_SAMPLE = 64
"""Maximum number of files per sample whose headers are read ahead; one request round per file."""


class IndexedArchive:
    """An archive with headers that were read ahead.

    Attributes:
        samples: Number of samples according to the index; None if unknown.
    """

    def __init__(self, file: ScanSource, *, wrong: int = 0, samples: int | None = None) -> None:
        """Open a file without headers; `wrong` is the number of offsets known to be invalid."""
        self.samples = samples
        self._file, self._wrong = file, wrong
        self._known: dict[int, bytes] = {}
        self._last = 0, b""  # offset and bytes of the last header read

    @property
    def unused(self) -> int:
        """Number of offsets in the index at which the scan found no header."""
        return self._wrong + len(self._known)

    def look(self, starts: Sequence[int]) -> None:
        """Read the headers at some offsets."""
        within = [start for start in starts if 0 <= start <= self._file.size - BLOCK]
        self._wrong += len(starts) - len(within)
        self._known.update(zip(within, self._file.read_blocks(within, _HEADER_READ_BYTES)))

    def follow(self, starts: Sequence[int]) -> None:
        """Read the headers of the first members of samples, then those of their other members."""
        self.look(starts)
        ends = starts
        for _ in range(_MAX_FILES_PER_SAMPLE):
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
        """Return a range of bytes, as `ScanSource.read` does."""
        if stop - start == BLOCK and start in self._known:
            self._last = start, self._known.pop(start)
        begin, piece = self._last
        if begin <= start and stop <= begin + len(piece):
            return piece[start - begin : stop - begin]
        return self._file.read(start, stop)


def open_indexed(file: ScanSource) -> IndexedArchive | None:
    """Return an archive with the headers of its index; None without a useful index beside it."""
    name = file.name.rpartition("/")[2]
    text = file.read_sibling(f"{name.partition('.')[0]}.idx")
    places = list(_places(text)) if text is not None else []
    if places and len(places) * _MIN_HEADER_DISTANCE_BYTES <= file.size:
        hints = IndexedArchive(file)
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


def _by_samples(file: ScanSource, data: bytes) -> IndexedArchive:
    """Return an archive with the headers of an Energon index; an invalid index counts as one wrong offset."""
    places = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    ascending = bool((places[1:] > places[:-1]).all())
    if not len(places) or len(data) % 8 or not ascending or int(places[-1]) > file.size:
        return IndexedArchive(file, wrong=1)
    hints = IndexedArchive(file, samples=len(places) - 1)
    if hints.samples and hints.samples * _MIN_HEADER_DISTANCE_BYTES <= file.size:
        hints.follow([int(place) for place in places])
    return hints


def open_archive(file: ScanSource, *, indexed: bool) -> tuple[Read, IndexedArchive | None]:
    """Return a read function of an archive, and its header index if `indexed` and there is one."""
    hints = open_indexed(file) if indexed else None
    return (file.read if hints is None else hints.read), hints
