"""How the companion of an index.json lies in its file.

::

    head          64 bytes, see `Head`
    sections      the columns of the index, each at a multiple of 64 bytes
    description   JSON: what is in which section; ends with the file

All numbers are little-endian. The head holds the digest of the description, and the description that of
each section.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from streamplug.errors import InvalidIndexError

COMPANION_NAME = "index.streamplug"
COMPANION_VERSION = 1

HEAD_BYTES = 64
ALIGNMENT = 64
MAX_DESCRIPTION = 1 << 26

_MAGIC = b"\x89splugix\n"
_HEAD = Struct("<9s3xIQQ16s16x")


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a companion.

    Attributes:
        at: Where the description begins.
        size: Its size in bytes.
        digest: Its xxh3_128.
    """

    at: int
    size: int
    digest: bytes

    def pack(self) -> bytes:
        """Return the bytes."""
        return _HEAD.pack(_MAGIC, COMPANION_VERSION, self.at, self.size, self.digest)


def unpack_head(data: bytes, where: str) -> Head:
    """Return the head that some bytes are.

    Raises:
        InvalidIndexError: If they are none, or of another version.
    """
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        raise InvalidIndexError(f"{where} is no companion of an index.json, or its head is damaged")
    _, version, at, size, digest = _HEAD.unpack(data[:HEAD_BYTES])
    if version != COMPANION_VERSION:
        raise InvalidIndexError(
            f"{where} has version {version}; this streamplug reads version {COMPANION_VERSION}"
        )
    if at < HEAD_BYTES or size > MAX_DESCRIPTION:
        raise InvalidIndexError(f"{where}: its head is damaged")
    return Head(at, size, digest)
