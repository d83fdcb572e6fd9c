"""Manifests of shards whose samples are files of their own.

A manifest is the file of the role `MANIFEST_ROLE`, little-endian::

    8 bytes     89 62 75 6e 64 6c 65 01
    uint32      1 if there are labels, else 0
    uint32      0
    uint64      N, the number of files
    uint64[N]   sizes in bytes
    int64[N]    labels, if there are any
    uint64[N]   end of each name in the names
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
"""Role of the manifest among the files of a shard."""

MULTIFILE_PREFIX = "_bundles/"
"""Prefix of the names of such shards, and of the files stored beside an index."""

_MAGIC = b"\x89bundle\x01"
_HEAD = Struct("<8sIIQ")
_I64 = np.dtype("<i8")


@dataclass(frozen=True)
class ShardManifest:
    """The files of a shard, each of which is a sample.

    Attributes:
        sizes: Bytes of each file, shape ``[n]``.
        name_ends: End of each name in `names`, shape ``[n]``.
        names: Names relative to the root of the data set, UTF-8, back to back.
        labels: Label of each file, shape ``[n]``, or None.
    """

    sizes: Int64
    name_ends: Int64
    names: Bytes1D
    labels: Int64 | None

    @classmethod
    def of(
        cls, names: Sequence[str], sizes: Sequence[int], labels: Sequence[int] | None
    ) -> ShardManifest:
        """Return the manifest of files.

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
        label_array = None if labels is None else np.array(labels, np.int64)
        return cls(np.array(sizes, np.int64), ends, text, label_array)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def ends(self) -> Int64:
        """End of each file in the concatenation of all, shape ``[n]``."""
        return np.cumsum(self.sizes)

    @property
    def name_starts(self) -> Int64:
        """Start of each name in `names`, shape ``[n]``."""
        return np.concatenate([np.zeros(1, np.int64), self.name_ends])[: len(self)]

    def name(self, number: int) -> str:
        """Return the name of a file."""
        start = int(self.name_ends[number - 1]) if number else 0
        return self.names[start : int(self.name_ends[number])].tobytes().decode()

    def safe_name(self, number: int) -> str:
        """Return the name of a file; raise `CorruptShardError` if it is outside of the data set."""
        name = self.name(number)
        if name.startswith("/") or "\0" in name or not {".", ".."}.isdisjoint(name.split("/")):
            raise CorruptShardError(f"the name {name!r:.80} in its list of files leads elsewhere")
        return name

    def pack(self) -> bytes:
        """Return the manifest in its stored form."""
        head = _HEAD.pack(_MAGIC, self.labels is not None, 0, len(self))
        arrays = [self.sizes, *([] if self.labels is None else [self.labels]), self.name_ends]
        return b"".join(
            [head, *(array.astype(_I64).tobytes() for array in arrays), self.names.tobytes()]
        )

    @classmethod
    def unpack(cls, data: Bytes1D | Buffer, samples: int, size: int) -> ShardManifest:
        """Parse a stored manifest.

        Args:
            data: Content of the file.
            samples: Number of files in the index.
            size: Total bytes of the files in the index.

        Raises:
            CorruptShardError: If it contradicts the index.
        """
        content = np.frombuffer(data, np.uint8)
        head = content[: _HEAD.size].tobytes()
        has_labels = head == _HEAD.pack(_MAGIC, 1, 0, samples)
        if not has_labels and head != _HEAD.pack(_MAGIC, 0, 0, samples):
            raise CorruptShardError(f"its list of files is not one of {samples} files")
        count = 3 if has_labels else 2
        stop = _HEAD.size + count * 8 * samples
        if len(content) < stop:
            raise CorruptShardError(f"its list of {samples} files has only {len(content)} bytes")
        arrays = content[_HEAD.size : stop].view(_I64).reshape(count, samples).astype(np.int64)
        manifest = cls(arrays[0], arrays[-1], content[stop:], arrays[1] if has_labels else None)
        manifest._check(size)
        return manifest

    def _check(self, size: int) -> None:
        sizes, names = self.sizes, np.diff(self.name_ends, prepend=0)
        # Compared one by one first: the sum of invalid sizes may overflow.
        if (sizes < 0).any() or (sizes > size).any() or int(sizes.sum()) != size:
            raise CorruptShardError(f"its files do not have {size} bytes together")
        last = int(self.name_ends[-1]) if len(self) else 0
        if (names <= 0).any() or last != len(self.names):
            raise CorruptShardError("the names in its list of files are damaged")
        try:
            self.names.tobytes().decode()
        except UnicodeDecodeError as error:
            raise CorruptShardError("the names in its list of files are not UTF-8") from error
