"""Packs of samples as one dict of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug_packing.varlen import varlen_columns

PACK_COLUMNS = ("cu_seqlens", "max_seqlen", "position_ids", "sample_ids")
"""Names that a pack has beside the columns of its samples."""


def collate_pack(
    samples: Sequence[Any],
    sizes: Sequence[int],
    sample_ids: Sequence[int],
    concatenate: Callable[[Sequence[Any]], Any],
) -> dict[str, Any]:
    """Return a pack: arrays concatenated along their first axis, numbers as an array, all else as lists.

    Beside the columns of the samples it has those of `varlen_columns`, and ``sample_ids``, a list.

    Raises:
        ConfigError: If a sample is no dict, has other columns than the first or one of these names, or
            arrays cannot be concatenated.
    """
    first = samples[0]
    for sample in samples:
        if not isinstance(sample, Mapping) or sample.keys() != first.keys():
            shown = list(sample) if isinstance(sample, Mapping) else type(sample).__name__
            raise ConfigError(
                f"samples of a pack must be dicts of the same columns, not {shown!r:.200}: have transform= "
                "return those, or give collate_fn="
            )
    for name in PACK_COLUMNS:
        if name in first:
            raise ConfigError(
                f"column {name!r}: a pack has a column of that name; rename it in transform=, or give "
                "collate_fn="
            )
    pack = {name: _join(name, [s[name] for s in samples], concatenate) for name in first}
    return pack | varlen_columns(sizes) | {"sample_ids": list(sample_ids)}


def concatenate_arrays(values: Sequence[Any]) -> Any:
    """Return arrays and numbers concatenated along their first axis."""
    arrays = [np.atleast_1d(value) for value in values]
    joined = np.concatenate(arrays)
    if joined.dtype.kind == "f" and all(array.dtype.kind in "iu" for array in arrays):
        # Of int64 and uint64, NumPy makes float64, which rounds them.
        if any((array < 0).any() for array in arrays):
            raise ValueError("there are integers below 0, and others that only uint64 holds")
        return np.concatenate(arrays, dtype=np.uint64, casting="unsafe")
    return joined


def _join(name: str, values: list[Any], concatenate: Callable[[Sequence[Any]], Any]) -> Any:
    if not all(hasattr(value, "ndim") or isinstance(value, Number) for value in values):
        return values
    try:
        return concatenate(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"column {name!r}: these arrays cannot be concatenated along their first axis: {error}; have "
            "transform= return others, or give collate_fn="
        ) from error
