"""Encodings of values in a container: a gzip file, or a file of PyTorch."""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar

from streamplug.errors import ConfigError, DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin.registry import make

_MAX_DECOMPRESSED_BYTES = 1 << 30
"""Maximum bytes of a decompressed value."""


class Gzipped(Encoding):
    """``gzipped:…``: what another encoding stores, as a gzip file: ``gzipped:json``."""

    def __init__(self, inner: Encoding) -> None:
        """Take the encoding of what is inside."""
        self._inner = inner

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
        inner = _unpacked(bytes(data))
        return self._inner.decode(memoryview(inner))


class _UnsafeGzipped(Gzipped):
    """The same where what is inside can run code."""

    unsafe: ClassVar[bool] = True


def _unpacked(data: bytes) -> bytes:
    """Return what is in a gzip file, which may have several parts."""
    parts: list[bytes] = []
    remaining = _MAX_DECOMPRESSED_BYTES
    while data or not parts:
        part = zlib.decompressobj(wbits=31)
        try:
            parts.append(part.decompress(data, remaining))
        except zlib.error as error:
            raise DecodeError(f"not gzip: {error}") from error
        remaining -= len(parts[-1])
        if part.unconsumed_tail or not remaining:
            raise DecodeError(f"{_MAX_DECOMPRESSED_BYTES} bytes or more when decompressed")
        if not part.eof:
            raise DecodeError("gzip data that was cut short")
        data = part.unused_data
    return b"".join(parts)


class Pth(Encoding):
    """``pth``: what `torch.save` writes: a pickle inside, which can run code when it is read."""

    unsafe: ClassVar[bool] = True

    def encode(self, value: Any) -> bytes:
        out = BytesIO()
        try:
            _torch().save(value, out)
        except Exception as error:  # what pickle runs into
            raise EncodeError(f"pth: {type(error).__name__}: {error}") from error
        return out.getvalue()

    def decode(self, data: memoryview) -> Any:
        try:
            return _torch().load(BytesIO(data), map_location="cpu", weights_only=False)
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
