"""Files with the sizes of the values of some columns, beside the shards.

Readers that need lengths of arrays, such as documents of tokens, read these instead of the shards. The key
``value_sizes`` of an index.json lists the files as its entries list those of shards. A file has, all integers
little-endian::

    8 bytes    89 73 69 7a 65 73 0a 01
    uint32     bytes of the JSON
    JSON       {"columns": [name, ...], "shards": [[basename, bytes, samples, widths], ...]}
    sizes      of each shard and column in order, the bytes of each value, in unsigned integers of a width

A shard is named by its raw file relative to the directory of this file, and by the bytes of that. Sizes of
shards that are not in an index any more, or that were replaced, are thus ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import InvalidIndexError
from streamplug.types import FileInfo

VALUE_SIZES = "value_sizes"
"""Key of an index.json that lists the files."""

_MAGIC = b"\x89sizes\n\x01"
_HEAD = Struct("<8sI")
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class ShardValueSizes:
    """Sizes of the values of a shard.

    Attributes:
        raw: The raw file of the shard.
        samples: Number of its samples.
        sizes: Bytes of each value by column, whole numbers, shape ``[samples]``.
    """

    raw: FileInfo
    samples: int
    sizes: Mapping[str, NDArray[Any]]


def pack_value_sizes(shards: Sequence[ShardValueSizes]) -> bytes:
    """Return the content of a file for shards that have sizes of the same columns."""
    columns = list(shards[0].sizes) if shards else []
    described: list[list[Any]] = []
    arrays: list[bytes] = []
    for shard in shards:
        widths = []
        for name in columns:
            sizes = shard.sizes[name]
            most = int(sizes.max(initial=0))
            widths.append(next(width for width in _WIDTHS if most < 1 << 8 * width))
            arrays.append(sizes.astype(f"<u{widths[-1]}").tobytes())
        described.append([shard.raw.basename, shard.raw.bytes, shard.samples, widths])
    text = json.dumps({"columns": columns, "shards": described}).encode()
    return b"".join([_HEAD.pack(_MAGIC, len(text)), text, *arrays])


def unpack_value_sizes(data: bytes) -> list[ShardValueSizes]:
    """Return the content of a file, which is untrusted.

    Raises:
        InvalidIndexError: If it is damaged.
    """
    try:
        magic, length = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        document = json.loads(data[_HEAD.size : start]) if magic == _MAGIC else {}
        columns, shards = document["columns"], []
        for basename, num_bytes, samples, widths in document["shards"]:
            sizes = {}
            for name, width in zip(columns, widths, strict=True):
                sizes[str(name)] = np.frombuffer(data, f"<u{width}", samples, start)
                start += samples * width
            raw = FileInfo(str(basename), int(num_bytes), {})
            shards.append(ShardValueSizes(raw, int(samples), sizes))
        if start != len(data):
            raise InvalidIndexError(f"{len(data)} bytes, expected {start}")
    except Exception as error:
        raise InvalidIndexError(
            f"damaged sizes of values: {type(error).__name__}: {error!s:.200}"
        ) from error
    return shards
