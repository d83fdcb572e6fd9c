"""Lists of arrays as the bytes of ``.ten`` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streamplug_webdataset.tensors import Ten


def encode_buffer(l: Sequence[NDArray[Any]]) -> bytes:  # noqa: E741 - the word that users know
    """Return arrays as the bytes of a ``.ten`` file.

    Raises:
        EncodeError: If one is no array of numbers, or has too many dimensions.
    """
    return Ten().encode(list(l))


def decode_buffer(buf: bytes) -> list[NDArray[Any]]:
    """Return the arrays in a ``.ten`` file.

    Raises:
        DecodeError: If it is none.
    """
    return Ten().decode(memoryview(buf))


def save(fname: str | Path, *args: NDArray[Any]) -> None:
    """Write arrays into a ``.ten`` file.

    Raises:
        EncodeError: If one is no array of numbers, or has too many dimensions.
    """
    Path(fname).write_bytes(encode_buffer(args))


def load(fname: str | Path) -> list[NDArray[Any]]:
    """Return the arrays in a ``.ten`` file.

    Raises:
        DecodeError: If it is none.
    """
    return decode_buffer(Path(fname).read_bytes())
