"""Encodings of values in a container: a gzip file, or a file of PyTorch."""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar

from streamplug.errors import ConfigError, DecodeError, DecompressError, EncodeError
from streamplug.interfaces import Compression, Encoding
from streamplug.plugin import make
from streamplug.plugin_kit import large_value_error


class Gzipped(Encoding):
    """``gzipped:…``: what another encoding stores, as a gzip file: ``gzipped:json``."""

    def __init__(self, inner: Encoding) -> None:
        """Take the encoding of what is inside."""
        self._inner, self.lazy = inner, inner.lazy

    @classmethod
    def from_spec(cls, argument: str | None) -> Gzipped:
        if not argument:
            raise ConfigError("gzipped needs the encoding inside, such as gzipped:json")
        if argument.startswith("gzipped:gzipped:"):
            raise ConfigError(f"gzipped:{argument:.60}: twice is enough")
        inner: Encoding = make("encoding", argument)
        return _UnsafeGzipped(inner) if inner.unsafe else cls(inner)

    def encode(self, value: Any) -> bytes:
        return gzip.compress(self._inner.encode(value), mtime=0)

    def decode(self, data: memoryview) -> Any:
        return self._inner.decode(memoryview(_unpacked(data, self.max_value_bytes)))


class _UnsafeGzipped(Gzipped):
    """The same where what is inside can run code."""

    unsafe: ClassVar[bool] = True


def _unpacked(data: memoryview, max_bytes: int) -> bytes:
    """Return what is in a gzip file, which may have several parts."""
    first = zlib.decompressobj(wbits=31)
    is_long = len(data) > max_bytes >> 11  # deflate expands less than 2,048 times
    if is_long and int.from_bytes(data[-4:], "little") > max_bytes:  # the size of the last part
        raise large_value_error("gzip data", max_bytes)
    try:
        value = first.decompress(data, max_bytes + 1)
        if first.eof and not first.unused_data:
            return value
        if len(value) <= max_bytes:  # several parts, or damaged
            gzip_: Compression = make("compression", "gz")
            return gzip_.decompress(data, max_size=max_bytes)
    except zlib.error as error:
        raise DecodeError(f"not gzip: {error}") from error
    except DecompressError as error:
        raise DecodeError(f"not gzip of at most {max_bytes} bytes: {error}") from error
    raise large_value_error("gzip data", max_bytes)


class Pth(Encoding):
    """``pth``: what `torch.save` writes: a pickle inside, which can run code when it is read."""

    unsafe: ClassVar[bool] = True

    def encode(self, value: Any) -> bytes:
        out, torch = BytesIO(), _torch()
        try:
            torch.save(value, out)
        except Exception as error:  # what pickle runs into
            raise EncodeError(f"pth: {type(error).__name__}: {error}") from error
        return out.getvalue()

    def decode(self, data: memoryview) -> Any:
        torch = _torch()
        try:
            return torch.load(BytesIO(data), map_location="cpu", weights_only=False)
        except Exception as error:  # what pickle runs into
            raise DecodeError(f"not a file of torch: {type(error).__name__}: {error}") from error


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise ConfigError(
            "values with the extension pth need torch: install it, or leave the column out with columns="
        ) from None


def torch_dumps(data: Any) -> bytes:
    """Return what `torch.save` writes of a value.

    Raises:
        EncodeError: If it cannot be saved.
        ConfigError: If torch is not installed.
    """
    return Pth().encode(data)


def torch_loads(data: bytes) -> Any:
    """Return the value that `torch.save` wrote; this can run code, so trust its writer.

    Raises:
        DecodeError: If it is no such file.
        ConfigError: If torch is not installed.
    """
    return Pth().decode(memoryview(data))
