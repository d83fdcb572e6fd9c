"""Formats of plain text files, which are scanned once for the offsets of their samples.

The offsets are cached in a file, all integers little-endian::

    8 bytes        89 6c 69 6e 65 73 0a 01
    uint64         N, the number of samples
    uint64         bytes of the data file
    uint32[N + 1]  offset of each sample in the data file, and its end; uint64 if that has 4 GiB or more

A header may precede the first sample. Blank lines belong to the preceding sample.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from streamplug_files import ScannableFormat, ScanSource

from streamplug.errors import CorruptShardError, InvalidIndexError
from streamplug.interfaces import Column, RangeReadableFormat, ShardHeader, ShardInfo, ShardReader
from streamplug.plugin_kit import HEAD_BYTES, describe_misnamed
from streamplug.types import Bytes1D, Int64
from streamplug_text.split import (
    HIDDEN_NAMES,
    MAX_FILE,
    U32,
    Lines,
    Offsets,
    SplitHeader,
    SplitReader,
)

BOM = b"\xef\xbb\xbf"

_MAGIC = b"\x89lines\n\x01"
_HEAD = Struct("<8sQQ")
_U64 = np.dtype("<u8")
_BLOCK = 1 << 23
_MAX_SAMPLE_BYTES = 1 << 30
"""Maximum bytes of a sample; longer ones suggest an unclosed quote or a file that is not text."""


class PlainFormat(ScannableFormat, RangeReadableFormat):
    """Base class of formats of plain text files."""

    hidden_names: ClassVar[str] = HIDDEN_NAMES
    roles: ClassVar[tuple[str, ...]] = ("data", "meta")
    header_role: ClassVar[str] = "meta"

    @abstractmethod
    def lines(self, columns: Sequence[Column]) -> Lines:
        """Return the parser of the lines."""

    def check(self, samples: int, role: str, size: int) -> None:
        least = _HEAD.size + 4 * (samples + 1) if role == "meta" else samples
        if least > size:
            raise InvalidIndexError(
                f"{samples} samples cannot lie in a {role} file of {size} bytes"
            )

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        data = files["data"]
        offsets = _unpacked(files["meta"], shard.samples, len(data))
        return SplitReader(data, _PlainHead(offsets, self.lines(columns), data))

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, shard.files["meta"].raw.bytes

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        offsets = _unpacked(head, shard.samples, shard.files["data"].raw.bytes)
        return SplitHeader(offsets, self.lines(columns))


class _PlainHead(SplitHeader):
    """Offsets of samples, with line numbers for errors."""

    def __init__(self, offsets: Offsets, lines: Lines, data: Bytes1D) -> None:
        super().__init__(offsets, lines)
        self._data = data

    def called(self, index: int) -> str:
        line = 1 + int(np.count_nonzero(self._data[: int(self.offsets[index])] == ord("\n")))
        return f"sample {index} (line {line})"


def packed(starts: Sequence[Int64], size: int) -> bytes:
    """Return the offsets file of a data file.

    Args:
        starts: Offsets of its samples, in any number of arrays.
        size: Bytes of the data file.
    """
    kind = U32 if size <= MAX_FILE else _U64
    offsets = np.concatenate([*(part.astype(kind) for part in starts), np.array([size], kind)])
    return _HEAD.pack(_MAGIC, len(offsets) - 1, size) + offsets.tobytes()


def _unpacked(meta: Bytes1D, samples: int, size: int) -> Offsets:
    """Return the offsets of samples, and the end of the last."""
    known = _HEAD.unpack(meta[: _HEAD.size].tobytes()) if len(meta) >= _HEAD.size else ()
    if known != (_MAGIC, samples, size):
        raise CorruptShardError(
            f"what was found in it before is not of {samples} samples in {size} bytes"
        )
    kind = U32 if size <= MAX_FILE else _U64
    if len(meta) != _HEAD.size + kind.itemsize * (samples + 1):
        raise CorruptShardError(f"{len(meta)} bytes cannot place {samples} samples")
    offsets = meta[_HEAD.size :].view(kind)
    if offsets[-1] != size:
        raise CorruptShardError(f"samples end at byte {offsets[-1]}, the file at {size}")
    if (wrong := offsets[1:] <= offsets[:-1]).any():
        raise CorruptShardError(f"sample {int(wrong.argmax())} ends before it begins")
    return offsets


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file that ends with a complete record.

    Attributes:
        at: Offset in the file.
        line: Number of its first line, from 1.
        data: Its content, with a final newline even if the file has none.
        ends: End of each record in `data`, after its newline.
    """

    at: int
    line: int
    data: bytes
    ends: Int64

    @property
    def starts(self) -> Int64:
        """Offset of each record in `data`."""
        return np.concatenate([[0], self.ends[:-1]])


def parts(file: ScanSource, ends_of: Callable[[bytes], Int64]) -> Iterator[FilePart]:
    """Yield the parts of a file, without the byte order mark.

    Args:
        file: The file.
        ends_of: Returns the ends of records in data that starts with one; the last may be truncated.

    Raises:
        CorruptShardError: If it is another kind of file, the last record does not end, or one is too long.
    """
    if found := describe_misnamed(file.read(0, HEAD_BYTES), file.name):
        raise CorruptShardError(f"it is {found}, and no text of records")
    at, line = len(BOM) if file.read(0, len(BOM)) == BOM else 0, 1
    rest, more = b"", _BLOCK
    while at + len(rest) < file.size:
        here = at + len(rest)
        data = rest + file.read(here, min(here + more, file.size))
        final = at + len(data) >= file.size
        if final and not data.endswith(b"\n"):
            data += b"\n"
        ends = ends_of(data)
        stop = int(ends[-1]) if len(ends) else 0
        if stop:
            yield FilePart(at, line, data[:stop], ends)
            line += data.count(b"\n", 0, stop)
        rest = data[stop:]
        if rest and (final or len(rest) > _MAX_SAMPLE_BYTES):
            why = (
                "a quote is not closed"
                if final
                else f"it has more than {_MAX_SAMPLE_BYTES >> 20} MiB"
            )
            raise CorruptShardError(f"line {line}: what begins here does not end: {why}")
        at += stop
        more = _BLOCK if stop else 2 * more


def blank(part: FilePart) -> NDArray[np.bool_]:
    """Return which records of a part are empty lines."""
    sizes = np.diff(part.ends, prepend=0)
    first = np.frombuffer(part.data, np.uint8)[part.starts]
    empty: NDArray[np.bool_] = (sizes == 1) | ((sizes == 2) & (first == ord("\r")))
    return empty
