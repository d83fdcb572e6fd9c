"""The bytes of a Parquet file: all of them in memory, or those that are fetched by range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np
import pyarrow as pa
from streamplug_ranges import RangeFile

from streamplug.types import Bytes1D, Int64
from streamplug_parquet.footer import LIKELY_FOOTER_BYTES, footer_size, read_footer


class FileContent(ABC):
    """What is in memory of a file.

    Attributes:
        view: Its bytes, by their positions in the file.
    """

    view: memoryview | SparseView

    @abstractmethod
    def open(self) -> pa.NativeFile:
        """Return a file that Arrow reads."""


class FileBytes(ABC):
    """The bytes of a file.

    Attributes:
        end: Bytes at its end, at least the footer.
        is_whole: Whether these are all.
        footer_start: Where its footer begins.
    """

    end: memoryview
    is_whole: bool
    footer_start: int

    @abstractmethod
    def load(self, locate: Callable[[], Int64]) -> FileContent:
        """Return the content, with at least some ranges; they are located only if they must be fetched.

        Raises:
            StreamplugError: If they cannot be fetched, or located.
        """


class WholeFile(FileBytes, FileContent):
    """A file that is in memory, or mapped."""

    is_whole = True

    def __init__(self, data: Bytes1D | memoryview) -> None:
        self._buffer = pa.py_buffer(data)
        self.view = self.end = memoryview(self._buffer).cast("B")
        self.footer_start = len(self.end) - footer_size(self.end)

    def open(self) -> pa.NativeFile:
        return pa.BufferReader(self._buffer)

    def load(self, locate: Callable[[], Int64]) -> WholeFile:
        return self


class RangedFile(FileBytes):
    """A file of which the footer is fetched when it is opened, and ranges when they are loaded."""

    def __init__(self, file: RangeFile) -> None:
        """Fetch the footer.

        Raises:
            CorruptShardError: If there is none, such as of a file that was cut short.
            StreamplugError: If it cannot be fetched.
        """

        def read(start: int, stop: int) -> bytes:
            return file.read(np.array([(start, stop)], np.int64))[0].tobytes()

        self._file = file
        data = read_footer(file.size, read, file.usual_header_bytes or LIKELY_FOOTER_BYTES)
        self.is_whole = len(data) == file.size
        # Small files are read at once; of others, what lies before the footer is not kept.
        self.end = memoryview(data if self.is_whole else data[-footer_size(data) :])
        self.footer_start = file.size - footer_size(data)

    def load(self, locate: Callable[[], Int64]) -> FileContent:
        if self.is_whole:
            return WholeFile(self.end)
        ranges = locate()
        parts = self._file.read(ranges) if len(ranges) else []
        return _SparseContent(SparseView(self._file.size, ranges, parts))


class SparseView:
    """Some ranges of a file, by the positions of their bytes in the file; like a memoryview of the file."""

    def __init__(self, size: int, ranges: Int64, parts: Sequence[Bytes1D]) -> None:
        """Have ranges, ascending and disjoint of shape ``[n, 2]``, of a file of `size` bytes."""
        self._size, self._starts = size, ranges[:, 0].tolist()
        self._parts = [memoryview(part) for part in parts]  # type: ignore[arg-type]  # an array is a buffer

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> memoryview: ...

    def __getitem__(self, key: int | slice) -> int | memoryview:
        """Return a byte, or those of a slice with a start and a stop.

        Raises:
            IndexError: If they are not in one of the ranges.
        """
        start, stop = (key, key + 1) if isinstance(key, int) else (key.start, key.stop)
        number = bisect_right(self._starts, start) - 1
        part = self._parts[number] if number >= 0 else memoryview(b"")
        first = start - self._starts[number] if number >= 0 else 0
        if first + stop - start > len(part):
            raise IndexError(f"bytes {start} to {stop} are outside of the column chunks")
        return part[first] if isinstance(key, int) else part[first : first + stop - start]


class _SparseContent(FileContent):
    def __init__(self, view: SparseView) -> None:
        self.view: SparseView = view

    def open(self) -> pa.NativeFile:
        return pa.PythonFile(_SparseFile(self.view), mode="r")


class _SparseFile:
    """File object for Arrow; what it reads is not copied."""

    closed = False

    def __init__(self, view: SparseView) -> None:
        self._view, self._at = view, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, len(self._view))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> memoryview:
        data = self._view[self._at : self._at + size] if size else memoryview(b"")
        self._at += size
        return data

    def close(self) -> None:
        self.closed = True
