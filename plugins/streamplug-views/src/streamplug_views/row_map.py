"""Rows of added data sets by position in a view, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError
from streamplug.plugin_kit import parsing
from streamplug.types import Int64

MISSING = -1
"""Row of a position that the added data set has no row for."""


class RowMapping(Protocol):
    """Rows of a data set by position in a view."""

    def __len__(self) -> int: ...

    def row(self, position: int, /) -> int:
        """Return the row of one position."""

    def rows(self, positions: Int64, /) -> Int64:
        """Return the row of each position."""


class RowMap:
    """Rows in an array, in any order; `MISSING` where there is none. A file is mapped, and pickled by path.

    Attributes:
        where: Name of the map in errors.
    """

    def __init__(self, source: NDArray[Any] | Path, limit: int, where: str) -> None:
        """Open a map.

        Args:
            source: Rows, shape ``[positions]``, or a ``.npy`` file of them.
            limit: Number of rows that the data set has.
            where: Name of the map in errors.

        Raises:
            DataError: If the file is damaged.
        """
        self._source, self._limit, self.where = source, limit, where
        self._open()

    def _open(self) -> None:
        if isinstance(self._source, Path):
            self._rows = load_array(self._source, self.where)
        else:
            self._rows = self._source

    @property
    def path(self) -> Path | None:
        """The file; None for a map in memory."""
        return self._source if isinstance(self._source, Path) else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "_limit": self._limit, "where": self.where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, position: int) -> int:
        row: int = self._rows.item(position)
        if not MISSING <= row < self._limit:
            raise self._beyond()
        return row

    def rows(self, positions: Int64) -> Int64:
        rows: Int64 = self._rows[positions].astype(np.int64)
        if len(rows) and not (rows.min() >= MISSING and rows.max() < self._limit):
            raise self._beyond()
        return rows

    def _beyond(self) -> DataError:
        return DataError(
            f"{self.where} has rows beyond the {self._limit:,} of its data set; write the view again"
        )


def load_array(path: Path, where: str) -> NDArray[Any]:
    """Map a one-dimensional array of signed integers in a ``.npy`` file.

    Raises:
        DataError: If it is damaged.
    """
    with parsing(where, "write the view again"):
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 1 or array.dtype.kind != "i":
        raise DataError(f"{where} has no row numbers but {array.dtype}, shape {array.shape}")
    return array
