"""Checks of encodings whose values are vectors; part of `EncodingTests`."""

from __future__ import annotations

import numpy as np

from streamplug.interfaces import Encoding, GatherBuffer, VectorColumn
from streamplug.types import Bytes1D, Int64


def check_vectors(encoding: Encoding, buffer: Bytes1D, starts: Int64, sizes: Int64) -> None:
    """Check that an encoding counts the items of vectors, and finds values that are none."""
    if not isinstance(encoding, VectorColumn):
        return
    data = GatherBuffer(buffer)
    for number, stored in enumerate(data.slices(starts, sizes)):
        value = encoding.decode(memoryview(stored))
        items = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
        dtype = encoding.item or items.dtype
        one = slice(number, number + 1)
        lengths = encoding.lengths(sizes[one], dtype)
        assert lengths.shape == (1,)
        is_vector = bool(lengths[0] >= 0)
        if is_vector:
            are_vectors = encoding.are_vectors(data, starts[one], lengths, dtype)
            assert (are_vectors.shape, are_vectors.dtype) == ((1,), np.dtype(bool))
            is_vector = bool(are_vectors[0])
        assert is_vector == (items.ndim == 1)
        if is_vector:
            assert lengths[0] == len(items)
            assert stored.tobytes().endswith(items.astype(dtype).tobytes())
