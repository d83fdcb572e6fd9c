"""Small files that together are the data file of a shard, which is stored nowhere as one.

What they are stands in a file of the role `MANIFEST_ROLE`, all numbers little-endian::

    8 bytes     89 62 75 6e 64 6c 65 01
    uint32      1 if there are labels, else 0
    uint32      0
    uint64      N, the number of files
    uint64[N]   how many bytes each has
    int64[N]    the label of each, if there are labels
    uint64[N]   where each name ends in what follows
    names       in UTF-8, back to back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct

import numpy as np

from streamplug.errors import CorruptShardError, InvalidIndexError
from streamplug.types import Buffer, Bytes1D, Int64

MANIFEST_ROLE = "files"
"""The role of the file that says which files a shard consists of."""

_MAGIC = b"\x89bundle\x01"
_HEAD = Struct("<8sIIQ")
_I64 = np.dtype("<i8")


@dataclass(frozen=True)
class ShardManifest:
    """The files of a shard, each of which is a sample.

    Attributes:
        sizes: How many bytes each has, shape ``[n]``.
        name_ends: Where each name ends in `names`, shape ``[n]``.
        names: The names, below the root of the data set, back to back in UTF-8.
        labels: A number for each, shape ``[n]``, if they have labels.
    """

    sizes: Int64
    name_ends: Int64
    names: Bytes1D
    labels: Int64 | None

    @classmethod
    def of(
        cls, names: Sequence[str], sizes: Sequence[int], labels: Sequence[int] | None
    ) -> ShardManifest:
        """Return the bundle of some files.

        Raises:
            InvalidIndexError: If a name is not UTF-8.
        """
        try:
            encoded = [name.encode() for name in names]
        except UnicodeEncodeError as error:
            raise InvalidIndexError(
                f"{error.object!r:.200}: the names of files must be UTF-8; rename it"
            ) from None
        ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        text = np.frombuffer(b"".join(encoded), np.uint8)
        known = None if labels is None else np.array(labels, np.int64)
        return cls(np.array(sizes, np.int64), ends, text, known)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def ends(self) -> Int64:
        """Where each file ends in the data file, shape ``[n]``."""
        return np.cumsum(self.sizes)

    @property
    def name_starts(self) -> Int64:
        """Where each name begins in `names`, shape ``[n]``."""
        return np.concatenate([np.zeros(1, np.int64), self.name_ends])[: len(self)]

    def name(self, number: int) -> str:
        """Return the name of a file."""
        start = int(self.name_ends[number - 1]) if number else 0
        return self.names[start : int(self.name_ends[number])].tobytes().decode()

    def safe_name(self, number: int) -> str:
        """Return the name of a file to be read.

        Raises:
            CorruptShardError: If it leads out of the data set.
        """
        name = self.name(number)
        if name.startswith("/") or "\0" in name or not {".", ".."}.isdisjoint(name.split("/")):
            raise CorruptShardError(f"the name {name!r:.80} in its list of files leads elsewhere")
        return name

    def pack(self) -> bytes:
        """Return it as a file."""
        head = _HEAD.pack(_MAGIC, self.labels is not None, 0, len(self))
        arrays = [self.sizes, *([] if self.labels is None else [self.labels]), self.name_ends]
        return b"".join(
            [head, *(each.astype(_I64).tobytes() for each in arrays), self.names.tobytes()]
        )

    @classmethod
    def unpack(cls, data: Bytes1D | Buffer, samples: int, size: int) -> ShardManifest:
        """Return what is in a file.

        Args:
            data: Its content.
            samples: How many files the index says that there are.
            size: How many bytes it says that they have.

        Raises:
            CorruptShardError: If it is not what the index says.
        """
        found = np.frombuffer(data, np.uint8)
        known = _HEAD.unpack(found[: _HEAD.size].tobytes()) if len(found) >= _HEAD.size else ()
        if known not in ((_MAGIC, 0, 0, samples), (_MAGIC, 1, 0, samples)):
            raise CorruptShardError(f"its list of files is not one of {samples} files")
        stop = _HEAD.size + (2 + known[1]) * 8 * samples
        if len(found) < stop:
            raise CorruptShardError(f"its list of {samples} files has only {len(found)} bytes")
        arrays = found[_HEAD.size : stop].view(_I64).reshape(2 + known[1], samples).astype(np.int64)
        bundle = cls(arrays[0], arrays[-1], found[stop:], arrays[1] if known[1] else None)
        bundle._check(size)
        return bundle

    def _check(self, size: int) -> None:
        sizes, names = self.sizes, np.diff(self.name_ends, prepend=0)
        # Compared one by one first: sums of what is not true may overflow.
        if (sizes < 0).any() or (sizes > size).any() or int(sizes.sum()) != size:
            raise CorruptShardError(f"its files do not have {size} bytes together")
        last = int(self.name_ends[-1]) if len(self) else 0
        if (names <= 0).any() or last != len(self.names):
            raise CorruptShardError("the names in its list of files are damaged")
        try:
            self.names.tobytes().decode()
        except UnicodeDecodeError as error:
            raise CorruptShardError("the names in its list of files are not UTF-8") from error
