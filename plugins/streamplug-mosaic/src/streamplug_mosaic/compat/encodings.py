"""Functions for encodings, compressions and hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, StreamplugError
from streamplug.index import hash_names, make_encoding, new_hash
from streamplug.interfaces import Compression, Encoding
from streamplug.plugin import make
from streamplug_mosaic.compat.checks import ValueTypeError, unknown_specs

_ENCODINGS = {
    *("bytes", "str", "int", "ndarray", "str_int", "str_float", "str_decimal", "json", "pkl"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "pil", "jpeg", "png", "jpeg_array", "jpegarray"),
    *("list[pil]", "list[jpeg]", "list[png]"),
}
_LEVELS = {
    "br": range(12),
    "bz2": range(1, 10),
    "gz": range(10),
    "snappy": (),
    "zstd": range(1, 23),
}
MAX_DECOMPRESSED_BYTES = 1 << 40

# -- values ---------------------------------------------------------------------------


def get_mds_encodings() -> set[str]:
    """Return the names of the encodings of mosaicml-streaming; plugins may add others."""
    return set(_ENCODINGS)


def is_mds_encoding(encoding: str) -> bool:
    """Return whether an encoding exists."""
    if encoding in _ENCODINGS:
        return True  # even if its plugin is not installed
    try:
        _encoding(encoding)
    except StreamplugError:
        return False
    return True


def is_mds_encoding_safe(encoding: str) -> bool:
    """Return whether decoding an encoding cannot run code."""
    try:
        return not _encoding(encoding).unsafe
    except StreamplugError:  # of no plugin that is installed
        return True


def get_mds_encoded_size(encoding: str) -> int | None:
    """Return the size of a value in bytes; None if it varies.

    Raises:
        StreamplugError: If the encoding does not exist.
    """
    return _encoding(encoding).size


def mds_encode(encoding: str, obj: Any) -> bytes:
    """Encode a value; bytes are returned as they are.

    Raises:
        StreamplugError: If the encoding does not exist, or it cannot store the value.
    """
    if isinstance(obj, bytes):
        return obj
    if isinstance(obj, np.ndarray) and encoding.startswith("ndarray"):
        if not obj.size:
            raise EncodeError("Attempting to encode a numpy array with 0 elements")
        if not obj.ndim:
            raise EncodeError(
                "Attempting to encode a scalar with NDArray encoding: give it a dimension"
            )
    try:
        return bytes(_encoding(encoding).encode(obj))
    except EncodeTypeError as error:
        raise ValueTypeError(str(error)) from error


def mds_decode(encoding: str, data: bytes) -> Any:
    """Decode a value.

    Raises:
        StreamplugError: If the encoding does not exist, or the bytes are damaged.
    """
    return _encoding(encoding).decode(memoryview(data))


def _encoding(spec: str) -> Encoding:
    with unknown_specs():
        return make_encoding("value", spec, {})


# -- compressions ---------------------------------------------------------------------


def get_compressions() -> set[str]:
    """Return the names of the compressions of mosaicml-streaming, without and with levels."""
    levels = {f"{name}:{level}" for name, levels in _LEVELS.items() for level in levels}
    return {*_LEVELS, *levels}


def is_compression(algo: str | None) -> bool:
    """Return whether a compression exists."""
    return algo in get_compressions()


def get_compression_extension(algo: str) -> str:
    """Return the file name extension of a compression.

    Raises:
        ConfigError: If the compression does not exist.
    """
    return _check(algo).partition(":")[0]


def compress(algo: str | None, data: bytes) -> bytes:
    """Compress bytes; None leaves them as they are.

    Raises:
        ConfigError: If the compression does not exist.
    """
    return data if algo is None else bytes(_compression(algo).compress(data))


def decompress(algo: str | None, data: bytes) -> bytes:
    """Decompress bytes; None leaves them as they are.

    Raises:
        ConfigError: If the compression does not exist.
        DecompressError: If they are damaged.
    """
    return (
        data
        if algo is None
        else bytes(_compression(algo).decompress(data, max_size=MAX_DECOMPRESSED_BYTES))
    )


def _check(algo: str) -> str:
    if not is_compression(algo):
        raise ConfigError(f"{algo!r} is not a supported compression algorithm")
    return algo


def _compression(algo: str) -> Compression:
    compression: Compression = make("compression", _check(algo))
    return compression


# -- hashes --------------------------------------------------------------------------


def get_hashes() -> set[str]:
    """Return the names of all hashes."""
    return set(hash_names())


def is_hash(algo: str) -> bool:
    """Return whether a hash exists."""
    return algo in hash_names()


def get_hash(algo: str, data: bytes) -> str:
    """Return the hexadecimal hash of bytes.

    Raises:
        ConfigError: If the hash does not exist.
    """
    digest = new_hash(algo)
    digest.update(data)
    return digest.hexdigest()


def get_index_basename() -> str:
    """Return the file name of an index."""
    return "index.json"
