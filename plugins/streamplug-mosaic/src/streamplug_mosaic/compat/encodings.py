"""Functions of mosaicml-streaming for single values, files and digests: encodings, compressions, hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, StreamplugError
from streamplug.index import make_encoding
from streamplug.index.hashes import hash_names, new_hash
from streamplug.interfaces import Compression, Encoding
from streamplug.plugin.registry import make
from streamplug_mosaic.compat.checks import ValueTypeError

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
_MOST = 1 << 40
"""Bytes that decompressed data may have."""

# -- values ---------------------------------------------------------------------------


def get_mds_encodings() -> set[str]:
    """Return the names of the encodings of mosaicml-streaming; there may be more of plugins."""
    return set(_ENCODINGS)


def is_mds_encoding(encoding: str) -> bool:
    """Say whether there is such an encoding."""
    if ":" not in encoding:
        return encoding in _ENCODINGS  # whether its plugin is installed or not
    try:
        _encoding(encoding)
    except StreamplugError:
        return False
    return True


def is_mds_encoding_safe(encoding: str) -> bool:
    """Say whether decoding values of this encoding can run no code."""
    return encoding != "pkl"


def get_mds_encoded_size(encoding: str) -> int | None:
    """Return the bytes of each value; None where they differ.

    Raises:
        StreamplugError: If there is no such encoding.
    """
    return _encoding(encoding).size


def mds_encode(encoding: str, obj: Any) -> bytes:
    """Return the bytes that a value is stored as; what is bytes already is left as it is.

    Raises:
        StreamplugError: If there is no such encoding, or it cannot store the value.
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
    """Return the value that is stored as some bytes.

    Raises:
        StreamplugError: If there is no such encoding, or the bytes are damaged.
    """
    return _encoding(encoding).decode(memoryview(data))


def _encoding(spec: str) -> Encoding:
    return make_encoding("value", spec, {})


# -- compressions ---------------------------------------------------------------------


def get_compressions() -> set[str]:
    """Return the names of the compressions of mosaicml-streaming, bare and with each level."""
    levels = {f"{name}:{level}" for name, each in _LEVELS.items() for level in each}
    return {*_LEVELS, *levels}


def is_compression(algo: str | None) -> bool:
    """Say whether there is such a compression."""
    return algo in get_compressions()


def get_compression_extension(algo: str) -> str:
    """Return how names of files end that are compressed so.

    Raises:
        ConfigError: If there is no such compression.
    """
    return _check(algo).partition(":")[0]


def compress(algo: str | None, data: bytes) -> bytes:
    """Return bytes compressed; as they are with None.

    Raises:
        ConfigError: If there is no such compression.
    """
    return data if algo is None else bytes(_compression(algo).compress(data))


def decompress(algo: str | None, data: bytes) -> bytes:
    """Return bytes decompressed; as they are with None.

    Raises:
        ConfigError: If there is no such compression.
        DecompressError: If they are damaged.
    """
    return data if algo is None else bytes(_compression(algo).decompress(data, max_size=_MOST))


def _check(algo: str) -> str:
    if not is_compression(algo):
        raise ConfigError(f"{algo!r} is not a supported compression algorithm")
    return algo


def _compression(algo: str) -> Compression:
    found: Compression = make("compression", _check(algo))
    return found


# -- digests --------------------------------------------------------------------------


def get_hashes() -> set[str]:
    """Return the names of all digests."""
    return set(hash_names())


def is_hash(algo: str) -> bool:
    """Say whether there is such a digest."""
    return algo in hash_names()


def get_hash(algo: str, data: bytes) -> str:
    """Return the digest of some bytes, in hexadecimal.

    Raises:
        ConfigError: If there is no such digest.
    """
    digest = new_hash(algo)
    digest.update(data)
    return digest.hexdigest()


def get_index_basename() -> str:
    """Return the name of an index."""
    return "index.json"
