"""Options of batches of limited cost, and the cost of samples and batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np

from streamplug.config import parse_count, suggest_keywords, whole_number
from streamplug.errors import ConfigError
from streamplug.types import Int64

MEASURES = ("length", "bytes", "value")
PADDINGS = ("none", "batch")
_MAX_LIMIT = 1 << 62
"""Largest limit, so that costs up to it, and twice as many, are int64."""


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBudget:
    """Options of ``batching_method="budget"``: batches of samples up to a limit of cost.

    The cost of a sample of length n is ``n + quadratic * n**2``.

    Attributes:
        limit: Largest cost of one rank's batch, or text such as ``"64k"``.
        column: Name of the column whose values have the length; None for a `measure` of whole samples.
        measure: What the length is: ``"length"``, that of the value along its first axis; ``"bytes"``, its
            stored bytes; ``"value"``, the value itself, a whole number; or a function of the value, or of
            the sample with all its columns if there is no `column`, which is called once for each sample and
            cached.
        max_length: Length to which a transform will cut longer samples; None for samples that are not cut.
        quadratic: Cost of attention: 1 / (6 * hidden size) for a transformer whose other cost is 1 a token.
        pad_to: ``"batch"`` if samples are padded to the longest of their batch: batches then have samples of
            similar length, and cost their number times the largest cost. ``"none"`` if they are not padded.
        micro_batches: Number of batches of one optimizer step over all ranks, which each rank reads
            ``micro_batches / ranks`` of; None for the number of ranks with which the run begins.
    """

    limit: int | str
    column: str | None = None
    measure: str | Callable[[Any], int] = "length"
    max_length: int | None = None
    quadratic: float = 0.0
    pad_to: str = "none"
    micro_batches: int | None = None

    def __post_init__(self) -> None:
        limit = parse_count(self.limit, "limit")
        if not 1 <= limit <= _MAX_LIMIT:
            raise ConfigError(
                f"limit={self.limit!r:.60}: must be at least 1 and at most {_MAX_LIMIT}"
            )
        object.__setattr__(self, "limit", limit)
        for name in ("max_length", "micro_batches"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        if self.pad_to not in PADDINGS:
            raise ConfigError(f"pad_to={self.pad_to!r:.60}: choose one of {', '.join(PADDINGS)}")
        if not callable(self.measure) and self.measure not in MEASURES:
            raise ConfigError(
                f"measure={self.measure!r:.60}: choose one of {', '.join(MEASURES)}, or give a function"
            )
        if not isinstance(self.column, str | None):
            raise ConfigError(f"column={self.column!r:.60}: must be the name of a column")
        if self.column is None and not callable(self.measure):
            raise ConfigError(
                f"column=None: name the column whose {self.measure} is the length of a sample, or give a "
                "function of the sample as measure="
            )
        quadratic: Any = self.quadratic  # unchecked so far
        is_number = isinstance(quadratic, Real) and not isinstance(quadratic, bool)
        if not is_number or not 0 <= quadratic < math.inf:
            raise ConfigError(f"quadratic={quadratic!r:.60}: must be a number of at least 0")
        object.__setattr__(self, "quadratic", float(quadratic))

    @property
    def largest_cost(self) -> int:
        """`limit` as a number."""
        return int(self.limit)

    def costs(self, lengths: Int64) -> Int64:
        """Return the cost of samples of these lengths, at least 1, shape ``[n]``."""
        if self.max_length is not None:
            lengths = np.minimum(lengths, self.max_length)
        if self.quadratic:
            quadratic = np.ceil(lengths.astype(np.float64) ** 2 * self.quadratic)
            lengths = lengths + np.minimum(quadratic, 1 << 62).astype(np.int64)
        return np.maximum(lengths, 1)

    def identity(self) -> dict[str, Any]:
        """Return the options on which batches depend, besides the lengths, as JSON values."""
        names = ("limit", "max_length", "quadratic", "pad_to")
        return {name: value for name, value in asdict(self).items() if name in names}
