"""Makes samples of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamplug.types import Sample


def make_samples(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Sample]:
    """Return samples, each a dict of the values that it has in the columns.

    Args:
        names: Of the columns.
        columns: The values of each, as many of one as of another.
    """
    # Dicts written out are made nearly three times as fast as of pairs, and few columns are the rule.
    if len(names) == 1:
        (a,) = names
        return [{a: x} for x in columns[0]]
    if len(names) == 2:
        a, b = names
        return [{a: x, b: y} for x, y in zip(*columns)]
    if len(names) == 3:
        a, b, c = names
        return [{a: x, b: y, c: z} for x, y, z in zip(*columns)]
    if len(names) == 4:
        a, b, c, d = names
        return [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*columns)]
    return [dict(zip(names, row)) for row in zip(*columns)]
