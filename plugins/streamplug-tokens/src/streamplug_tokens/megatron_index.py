"""Indexes of Megatron-LM's data sets, the files ``.idx`` beside ``.bin``.

All integers are little-endian::

    9 bytes      4d 4d 49 44 49 44 58 00 00
    uint64       1, the version
    uint8        code of the dtype of tokens
    uint64       N, the number of sequences
    uint64       D, the number of documents plus 1
    int32[N]     tokens of each sequence
    int64[N]     offset in bytes of each sequence in the .bin
    int64[D]     first sequence of each document, and N
    int8[N]      mode of each sequence, in multimodal data sets
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import CorruptShardError
from streamplug.types import Int64

_MAGIC, _OLD_MAGIC = b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00"
_HEAD = Struct("<9sQBQQ")
_VERSION = 1
_DTYPES = {
    1: "<u1",
    2: "<i1",
    3: "<i2",
    4: "<i4",
    5: "<i8",
    6: "<f8",
    7: "<f4",
    8: "<u2",
}
_ADVICE = "copy it again, or write it again with Megatron's preprocess_data.py"


@dataclass(frozen=True)
class MegatronIndex:
    """Content of an index.

    Attributes:
        dtype: Dtype of the tokens.
        offsets: Tokens before each sequence, and those of all, shape ``[sequences + 1]``.
        modes: Mode of each sequence, shape ``[sequences]``; None unless the data set is multimodal.
    """

    dtype: np.dtype[Any]
    offsets: Int64
    modes: NDArray[np.int8] | None


def parse_megatron_index(data: bytes, bin_bytes: int) -> MegatronIndex:
    """Parse an index.

    Args:
        data: Content of the file.
        bin_bytes: Bytes of the ``.bin``.

    Raises:
        CorruptShardError: If it is damaged, or that of another ``.bin``.
    """
    if data.startswith(_OLD_MAGIC):
        raise CorruptShardError(
            "its .idx is of the format TNTIDX of old versions of Megatron, which is not supported: write it "
            "again with preprocess_data.py"
        )
    if not data.startswith(_MAGIC):
        raise CorruptShardError(
            f"its .idx begins with {data[:9]!r}, and not with {_MAGIC!r} as those of Megatron; {_ADVICE}"
        )
    if len(data) < _HEAD.size:
        raise CorruptShardError(f"its .idx is cut off after {len(data)} bytes; {_ADVICE}")
    _, version, code, sequences, documents = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptShardError(f"its .idx has version {version}, expected {_VERSION}")
    if code not in _DTYPES:
        known = ", ".join(f"{code} ({np.dtype(name).name})" for code, name in _DTYPES.items())
        raise CorruptShardError(f"its .idx has the dtype code {code}; known are {known}")
    size = _HEAD.size + 12 * sequences + 8 * documents
    if len(data) not in (size, size + sequences):
        raise CorruptShardError(
            f"its .idx has {len(data)} bytes, but {sequences} sequences and {documents} document indices "
            f"take {size}, or {size + sequences} with modes; {_ADVICE}"
        )
    dtype = np.dtype(_DTYPES[code])
    lengths = np.frombuffer(data, "<i4", sequences, _HEAD.size)
    pointers = np.frombuffer(data, "<i8", sequences, _HEAD.size + lengths.nbytes)
    ends = np.frombuffer(data, "<i8", documents, _HEAD.size + lengths.nbytes + pointers.nbytes)
    offsets = _offsets(lengths, pointers, dtype.itemsize, bin_bytes)
    _check_documents(ends, sequences)
    modes = np.frombuffer(data, "<i1", sequences, size) if len(data) > size else None
    return MegatronIndex(dtype, offsets, modes)


def _offsets(lengths: NDArray[Any], pointers: Int64, item_bytes: int, bin_bytes: int) -> Int64:
    if (lengths < 0).any():
        number = int((lengths < 0).argmax())
        raise CorruptShardError(
            f"its .idx gives sequence {number} {lengths[number]} tokens; {_ADVICE}"
        )
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    starts = offsets * item_bytes
    # Compared by division: the end of a wrong pointer may overflow.
    beyond = (pointers < 0) | (pointers > bin_bytes)
    beyond |= (bin_bytes - np.where(beyond, 0, pointers)) // item_bytes < lengths
    if beyond.any():
        number = int(beyond.argmax())
        raise CorruptShardError(
            f"its .idx has sequence {number}, of {lengths[number]} tokens, at byte {pointers[number]}, but "
            f"the .bin has {bin_bytes} bytes: one of the two is cut off, or of another data set; {_ADVICE}"
        )
    if (pointers != starts[:-1]).any():
        number = int((pointers != starts[:-1]).argmax())
        raise CorruptShardError(
            f"its .idx has sequence {number} at byte {pointers[number]}, but the sequences before it take "
            f"{starts[number]} bytes: lengths and offsets contradict each other; {_ADVICE}"
        )
    if starts[-1] != bin_bytes:
        raise CorruptShardError(
            f"the sequences in its .idx take {starts[-1]} bytes, but the .bin has {bin_bytes}: they are of "
            f"two data sets, or the .bin was written on; {_ADVICE}"
        )
    return offsets


def _check_documents(ends: Int64, sequences: int) -> None:
    """Check the document indices, which are not needed for reading."""
    is_valid = len(ends) and ends[0] == 0 and ends[-1] == sequences and (np.diff(ends) >= 0).all()
    if not is_valid:
        raise CorruptShardError(
            f"the document indices in its .idx do not ascend from 0 to its {sequences} sequences; {_ADVICE}"
        )
