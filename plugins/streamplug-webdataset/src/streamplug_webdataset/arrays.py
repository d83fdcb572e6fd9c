"""Arrays as the files that NumPy writes."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import describe_start, large_value_error, wrong_type_error

_MAGIC = b"\x93NUMPY"
_NPY = ".npy"


class Npy(Encoding):
    """``npy``: an array of any dtype but those of Python objects, as a ``.npy`` file."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _file(bytes(value), _MAGIC, "npy")
        if not isinstance(value, (np.ndarray, np.generic)):
            raise wrong_type_error("npy", "an array, or the bytes of a .npy file", value)
        if isinstance(value, np.ma.MaskedArray):
            raise wrong_type_error("npy", "an array without a mask (see filled())", value)
        out = BytesIO()
        try:
            np.lib.format.write_array(out, np.asanyarray(value), allow_pickle=False)
            data = out.getvalue()
            if value.dtype.kind == "V":  # of no bytes, or with a longer head than NumPy reads
                _head(data[: _head_size(data)])
        except ValueError as error:
            raise EncodeError(f"npy: {error}") from error
        return data

    def decode(self, data: memoryview) -> Any:
        start = _head_size(data)
        try:
            dtype, shape, fortran = _head(bytes(data[:start]))
            if start + dtype.itemsize * prod(shape) != len(data):
                raise ValueError(f"shape {shape} of {dtype} has not {len(data) - start} bytes")
            order: Literal["C", "F"] = "F" if fortran else "C"
            return np.ndarray(shape, dtype, data, start, order=order).copy(order)
        # NumPy reads the head as Python source, and raises what its tokenizer and compiler run into.
        except Exception as error:
            raise DecodeError(f"not a .npy file: {type(error).__name__}: {error}") from error


def _head_size(data: bytes | memoryview) -> int:
    length = data[8:10] if bytes(data[6:7]) == b"\1" else data[8:12]
    return 8 + len(length) + int.from_bytes(length, "little")


@lru_cache(maxsize=256)
def _head(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return what the head of a file says; one head is that of many files."""
    file = BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version == (3, 0):
        # Like 2.0, but names of fields are in UTF-8; NumPy has no function for it.
        text = data[12:].decode().encode("ascii", "backslashreplace")
        version, file = (2, 0), BytesIO(len(text).to_bytes(4, "little") + text)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version}, expected 1.0, 2.0 or 3.0")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects, which would run code")
    if not dtype.itemsize:  # NumPy copies any number of them, which take no bytes in the file
        raise ValueError(f"items of {dtype} have no bytes")
    return dtype, shape, fortran


class Npz(Encoding):
    """``npz``: arrays by name, as a ``.npz`` file."""

    def __init__(self) -> None:
        self._single = Npy()

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _file(bytes(value), b"PK", "npz")
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise wrong_type_error("npz", "a dict of arrays, or the bytes of a .npz file", value)
        out = BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for name, array in value.items():
                # Of no time, so that the same arrays give the same bytes.
                member = zipfile.ZipInfo(f"{name}{_NPY}", (1980, 1, 1, 0, 0, 0))
                member.compress_type = zipfile.ZIP_DEFLATED
                try:
                    if member.filename != f"{name}{_NPY}":  # ZipInfo cuts names at a null byte
                        raise ValueError("no file can have such a name")
                    file.writestr(member, self._single.encode(np.asanyarray(array)))
                except (EncodeError, ValueError, struct.error) as error:
                    raise EncodeError(f"npz: array {name!r:.80}: {error}") from error
        return out.getvalue()

    def decode(self, data: memoryview) -> dict[str, Any]:
        try:
            with zipfile.ZipFile(BytesIO(data)) as file:
                members = file.infolist()
                if sum(member.file_size for member in members) > self.max_value_bytes:
                    raise large_value_error("an .npz file", self.max_value_bytes)
                return {m.filename.removesuffix(_NPY): self._value(file, m) for m in members}
        except DecodeError:
            raise
        except Exception as error:  # zip files that are damaged raise what they run into
            raise DecodeError(f"not a .npz file: {type(error).__name__}: {error}") from error

    def _value(self, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile decompresses these without a bound.
            raise DecodeError(f"{member.filename!r} in an .npz file is neither stored nor deflated")
        with file.open(member) as stream:
            data = stream.read(member.file_size)  # without a size, it may give more than it says
        name = member.filename
        return self._single.decode(memoryview(data)) if name.endswith(_NPY) else data


def _file(data: bytes, magic: bytes, kind: str) -> bytes:
    if not data.startswith(magic):
        raise EncodeError(f"{kind}: not a .{kind} file: {describe_start(data)}")
    return data


def numpy_dumps(data: NDArray[Any]) -> bytes:
    """Return an array as the bytes of a ``.npy`` file.

    Raises:
        EncodeError: If it is none, or one of Python objects.
    """
    return Npy().encode(data)
