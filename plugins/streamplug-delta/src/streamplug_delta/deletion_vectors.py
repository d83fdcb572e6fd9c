"""Deletion vectors of Delta tables: the positions of deleted rows of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from streamplug_parquet.deletion_vectors import parse_stored_vector, parse_vector

from streamplug.errors import DataError
from streamplug.types import Int64

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_CHARACTERS = 20
_HEAD_AND_CHECKSUM = 8  # bytes

ReadRange = Callable[[str, int, int], bytes]
"""Returns the bytes from a start to a stop of a file of the table."""


def read_vector(vector: Mapping[str, Any], read_range: ReadRange) -> Int64:
    """Return the deleted positions of a file, ascending.

    Args:
        vector: The descriptor ``deletionVector`` of an action ``add``.
        read_range: Reads files of the table.

    Raises:
        DataError: If the vector is damaged, or outside of the table.
    """
    try:
        kind, place = vector["storageType"], vector["pathOrInlineDv"]
        count = count_positions(vector)
        if kind == "i":
            positions = parse_vector(decode_z85(place)[: vector["sizeInBytes"]], count)
        elif kind == "u":
            folder, name = place[:-_UUID_CHARACTERS], place[-_UUID_CHARACTERS:]
            file = f"deletion_vector_{UUID(bytes=decode_z85(name))}.bin"
            start, size = int(vector.get("offset") or 0), int(vector["sizeInBytes"])
            key = f"{folder}/{file}" if folder else file
            positions = parse_stored_vector(
                read_range(key, start, start + size + _HEAD_AND_CHECKSUM), count
            )
        else:
            raise DataError(
                f"the deletion vector {place!r:.200} is at an absolute location, as in clones of tables, "
                "which is not supported"
            )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"a deletion vector is damaged: {error}") from error
    if len(positions) != count:
        raise DataError(
            f"a deletion vector is damaged: it has {len(positions)} rows, the log says {count}"
        )
    return positions


def count_positions(vector: Mapping[str, Any] | None) -> int:
    """Return how many rows a vector deletes, according to the log.

    Raises:
        DataError: If the log does not say.
    """
    count = 0 if vector is None else vector.get("cardinality")
    if not isinstance(count, int) or count < 0:
        raise DataError(f"a deletion vector is damaged: cardinality={count!r:.40}")
    return count


def decode_z85(text: str) -> bytes:
    """Decode text in base 85 with the alphabet of ZeroMQ, https://rfc.zeromq.org/spec/32/.

    >>> decode_z85("HelloWorld").hex()
    '864fd26fb559f75b'

    Raises:
        ValueError: If the text is not valid.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not a multiple of 5")
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            number = number * 85 + _Z85.index(character)
        data += number.to_bytes(4, "big")
    return bytes(data)
