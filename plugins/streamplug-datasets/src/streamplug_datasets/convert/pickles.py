"""Reads pickles of plain data and arrays of bytes, without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
import pickletools
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError

_MAX_DIMENSIONS = 32
"""Of arrays in all versions of NumPy."""


class PickledArray:
    """Stands for an array: keeps what the pickle says about it, and makes nothing of it."""

    def __init__(self, *_: Any) -> None:
        """Take no notice of what makes an empty array."""
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keep version, shape, dtype, whether it is in Fortran's order, and the bytes."""
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        """Return the array, if it is one of bytes.

        Raises:
            DataError: If it is none.
        """
        match self.state:
            case (_, tuple(shape), _DType(name="u1"), fortran, bytes(data)) if (
                all(isinstance(n, int) and n >= 0 for n in shape) and len(shape) <= _MAX_DIMENSIONS
            ):
                values = np.frombuffer(data, np.uint8)
                if values.size == math.prod(shape):
                    return values.reshape(shape, order="F" if fortran else "C")
        raise DataError(
            "an array that is not one of uint8, has other bytes than it says, or more than 32 dimensions"
        )


class _DType:
    """Stands for a dtype; see `PickledArray`."""

    def __init__(self, name: Any = "", *_: Any) -> None:
        """Keep its name."""
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Take no notice of what dtypes of more than a byte need."""


class _Latin1(bytes):
    """Bytes, as Python 3 pickles them for Python 2."""

    def __new__(cls, text: Any, encoding: Any) -> bytes:  # type: ignore[misc]  # plain bytes will do
        """Make them."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise DataError(f"text in {encoding!r:.40}")
        return text.encode("latin-1")

    def __setstate__(self, state: Any) -> None:
        """Refuse: bytes have none."""
        raise DataError("bytes with a state")


# Classes with __setstate__, all of them: of anything else, a pickle could set the attributes.
_STAND_INS: dict[tuple[str, str], type] = {
    ("_codecs", "encode"): _Latin1,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
}


_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}
_MEMO_WRITES = ("PUT", "LONG_BINPUT")
"""Instructions that store a value in the memo, with a number of up to 2**32 or more."""


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

    Nothing but the classes of this module is called, so a hostile pickle runs no code of its own.

    Raises:
        DataError: If it is damaged, or holds something else.
    """
    try:
        data = path.read_bytes()
        _check_sizes(data)
        return _Unpickler(BytesIO(data), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # damaged pickles raise what they run into
        raise DataError(f"{path}: no such pickle: {type(error).__name__}: {error}") from error


def _check_sizes(data: bytes) -> None:
    """Check that what follows is as long as it says, and that no memo is larger than the pickle.

    The unpickler would allocate the memory first.
    """
    stream = BytesIO(data)
    while code := stream.read(1):
        opcode = _OPCODES[code]
        if opcode.name == "STRING":  # of Python 2: any bytes, which pickletools would decode
            stream.readline()
            continue
        argument = opcode.arg.reader(stream) if opcode.arg else None
        if opcode.name in _MEMO_WRITES and isinstance(argument, int) and argument >= len(data):
            raise DataError(
                f"it stores a value as number {argument}, but has only {len(data)} bytes"
            )
        if opcode.name == "STOP":
            break
