"""Locations of the samples in an archive, and the file that stores them.

All numbers are little-endian::

    head          56 bytes, see `_HEAD`
    description   JSON: the extensions, padded with blanks to a multiple of 8 bytes
    sizes         uint32 or uint64, [extensions, samples]: bytes of each value
    blocks        uint32, [extensions, samples]: the archive block where it begins, 0 for none
    key_ends      uint32, [samples]: end of each key in `keys`
    keys          in UTF-8, back to back

The head contains the digest of everything after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.errors import CorruptShardError
from streamplug.types import Buffer, Bytes1D, Int64
from streamplug_webdataset.members import BLOCK

_MAGIC = b"\x89tarplc\n"
_VERSION = 1
_HEAD = Struct(
    "<8sIIQQQ16s"
)  # magic, version, bytes per size, samples, archive, description, digest
_U32 = np.dtype("<u4")
MAX_BLOCKS = 1 << 32


def min_file_bytes(samples: int) -> int:
    """Return the minimum size of the file for a number of samples."""
    return _HEAD.size + 4 * samples


@dataclass(frozen=True)
class SampleLocations:
    """Locations of the values of an archive's samples.

    Attributes:
        archive: Size of the archive in bytes.
        extensions: Extensions of the samples' files.
        blocks: First block of each value, 0 if a sample has none, shape ``[extensions, samples]``.
        sizes: Size of each value in bytes, same shape.
        key_ends: End of each key in `keys`, shape ``[samples]``.
        keys: The keys in UTF-8, concatenated.
    """

    archive: int
    extensions: Sequence[str]
    blocks: NDArray[Any]
    sizes: NDArray[Any]
    key_ends: NDArray[Any]
    keys: Bytes1D

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.key_ends)

    def pack(self) -> bytes:
        """Return the content of the file."""
        text = json.dumps({"extensions": list(self.extensions)}).encode()
        text += b" " * (-len(text) % 8)
        wide = bool(self.sizes.size) and int(self.sizes.max()) >= 1 << 32
        rest = b"".join(
            (
                text,
                self.sizes.astype("<u8" if wide else _U32).tobytes(),
                self.blocks.astype(_U32).tobytes(),
                self.key_ends.astype(_U32).tobytes(),
                self.keys.tobytes(),
            )
        )
        known = (8 if wide else 4, self.samples, self.archive, len(text))
        return _HEAD.pack(_MAGIC, _VERSION, *known, _digest(known, rest)) + rest

    @classmethod
    def unpack(cls, data: Bytes1D, samples: int, archive: int) -> SampleLocations:
        """Parse the content of a file.

        Args:
            data: The content.
            samples: Expected number of samples.
            archive: Expected size of the archive in bytes.

        Raises:
            CorruptShardError: If the file is damaged, or belongs to another archive.
        """
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        if len(view) < _HEAD.size or bytes(view[:8]) != _MAGIC:
            raise CorruptShardError("the sample locations are damaged: not such a file")
        _, version, width, *counts, digest = _HEAD.unpack(view[: _HEAD.size])
        if version != _VERSION:
            raise CorruptShardError(f"the sample locations have version {version}, not {_VERSION}")
        if _digest((width, *counts), view[_HEAD.size :]) != digest:
            raise CorruptShardError("the sample locations are damaged: their digest differs")
        if counts[:2] != [samples, archive]:
            raise CorruptShardError(
                f"its sample locations are for {counts[0]} samples in {counts[1]} bytes, the index says "
                f"{samples} samples in {archive} bytes"
            )
        try:
            places = cls._parsed(view[_HEAD.size :], width, samples, archive, counts[2])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptShardError(f"the sample locations are damaged: {error}") from None
        places.check()
        return places

    @classmethod
    def _parsed(
        cls, view: memoryview, width: int, samples: int, archive: int, text: int
    ) -> SampleLocations:
        names = json.loads(bytes(view[:text]))["extensions"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("extensions are texts")
        if width not in (4, 8) or text % 8 or len(set(names)) != len(names):
            raise ValueError("its description")
        shape, at = (len(names), samples), text
        sizes = np.frombuffer(view, f"<u{width}", len(names) * samples, at).reshape(shape)
        at += sizes.nbytes
        blocks = np.frombuffer(view, _U32, len(names) * samples, at).reshape(shape)
        at += blocks.nbytes
        ends = np.frombuffer(view, _U32, samples, at)
        return cls(
            archive, names, blocks, sizes, ends, np.frombuffer(view[at + ends.nbytes :], np.uint8)
        )

    def check(self) -> None:
        """Check that all values are inside the archive and all keys inside the file.

        Raises:
            CorruptShardError: If one is not.
        """
        ends = self.key_ends.astype(np.int64)
        if (np.diff(ends, prepend=0) < 0).any() or (ends[-1] if len(ends) else 0) != len(self.keys):
            raise CorruptShardError("the sample locations are damaged: the keys")
        try:
            self.keys.tobytes().decode()
        except UnicodeDecodeError as error:
            raise CorruptShardError(
                f"the sample locations are damaged: the keys: {error}"
            ) from None
        starts = self.keys[ends[ends < len(self.keys)]]
        if (starts & 0xC0 == 0x80).any():
            raise CorruptShardError("the sample locations are damaged: a key begins in a character")
        room = self.archive - self.blocks.astype(np.int64) * BLOCK
        outside = (room < 0) | (self.sizes > np.maximum(room, 0).astype(np.uint64))
        if outside.any():
            raise CorruptShardError(
                f"sample {int(outside.any(0).argmax())} lies beyond the {self.archive} bytes of the archive"
            )
        if self.samples and not (len(self.extensions) and (self.blocks > 0).any(0).all()):
            raise CorruptShardError("the sample locations are damaged: a sample without values")

    def ranges(self, rows: Int64) -> Int64:
        """Return the byte range of each sample in the archive, shape ``[n, 2]``."""
        blocks, sizes = self.blocks[:, rows].astype(np.int64), self.sizes[:, rows].astype(np.int64)
        begins = np.where(blocks > 0, blocks * BLOCK, np.int64(1) << 62)
        ends = np.where(blocks > 0, blocks * BLOCK + sizes, 0)
        if not len(rows):
            return np.empty((0, 2), np.int64)
        return np.stack([begins.min(0), ends.max(0)], axis=1)


def _digest(known: Sequence[int], rest: Buffer) -> bytes:
    digest = xxhash.xxh3_128(b"%d %d %d %d " % tuple(known))
    digest.update(rest)
    return digest.digest()
