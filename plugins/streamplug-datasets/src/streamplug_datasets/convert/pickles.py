"""Reads pickles of plain data and arrays of bytes, without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError


class PickledArray:
    """Stands for an array: keeps what the pickle says about it, and makes nothing of it."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keep version, shape, dtype, whether it is in Fortran's order, and the bytes."""
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        """Return the array, if it is one of bytes.

        Raises:
            DataError: If it is none.
        """
        match self.state:
            case (_, tuple(shape), _DType(name="u1"), fortran, bytes(data)) if all(
                isinstance(n, int) and n >= 0 for n in shape
            ):
                found = np.frombuffer(data, np.uint8)
                if found.size == math.prod(shape):
                    return found.reshape(shape, order="F" if fortran else "C")
        raise DataError("an array that is not one of uint8, or has other bytes than it says")


class _DType:
    """Stands for a dtype; see `PickledArray`."""

    def __init__(self, name: Any = "", *_: Any) -> None:
        """Keep its name."""
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Take no notice of what dtypes of more than a byte need."""


def _array(*_: Any) -> PickledArray:
    return PickledArray()


def _latin1(text: Any, encoding: Any) -> bytes:
    """Make bytes as Python 3 pickles them for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise DataError(f"text in {encoding!r:.40}")
    return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _latin1,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise DataError(
                f"it asks for {module}.{name}, which plain data has no need of: it was not read any further"
            ) from None


def load(path: Path) -> Any:
    """Return what a pickle holds: plain values, and a `PickledArray` for each array.

    Nothing but functions of this module is called, so a hostile pickle can do no more than fail.

    Raises:
        DataError: If it is damaged, or holds something else.
    """
    try:
        with path.open("rb") as stream:
            return _Unpickler(stream, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # damaged pickles raise what they run into
        raise DataError(f"{path}: no such pickle: {type(error).__name__}: {error}") from error
