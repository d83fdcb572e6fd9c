"""Memory-mapped arrays that are pickled by reference to their file."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from streamplug.errors import InvalidIndexError


class MappedArray(np.ndarray[Any, Any]):
    """Read-only array mapped from a file; arrays derived from it are not mapped.

    Unpickling maps the file again, if it still begins with the same bytes.
    """

    source: tuple[str, bytes, int] | None = None

    def __array_finalize__(self, made_from: object) -> None:
        self.source = None

    def __reduce__(self) -> Any:
        if self.source is None:
            return np.asarray(self).__reduce__()
        return _again, (*self.source, self.dtype.str, self.shape)


class MappedFile:
    """Read-only memory map of a file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path.absolute())
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise InvalidIndexError(f"{path} is empty")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.data = memoryview(self._map)

    def array(self, mark: bytes, at: int, dtype: str, shape: tuple[int, ...]) -> MappedArray:
        """Return a part as an array; `mark` are the first bytes of the file, which unpickling compares."""
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._map, dtype, count, at).reshape(shape).view(MappedArray)
        array.source = (self._path, mark, at)
        return array


def _again(path: str, mark: bytes, at: int, dtype: str, shape: tuple[int, ...]) -> MappedArray:
    file = MappedFile(Path(path))
    if file.data[: len(mark)] != mark:
        raise InvalidIndexError(
            f"{path} is another file than when the data set was opened; open it again"
        )
    return file.array(mark, at, dtype, shape)
