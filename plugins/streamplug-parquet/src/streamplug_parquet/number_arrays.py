"""Lists of numbers as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError
from streamplug.interfaces import Encoding
from streamplug_parquet.types import spec_of
from streamplug_parquet.values import ArrowValue, Lists


@dataclass(frozen=True)
class NumberArrays:
    """Decodes a column of lists of numbers to arrays of their type; see `decoders` of a stream.

    Lists are of ``list<…>``, of any length. One that is missing stays None; a missing number in a list is an
    error.
    """

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return the encoding that decodes to arrays.

        Raises:
            ConfigError: If the column has no lists of numbers.
        """
        if not isinstance(encoding, Lists):
            given = (
                spec_of(encoding.type)
                if isinstance(encoding, ArrowValue)
                else type(encoding).__name__
            )
            raise ConfigError(
                f"NumberArrays takes columns of lists of numbers, such as list<float>, not {given}"
            )
        return _Arrays(encoding)


class _Arrays(Encoding):
    def __init__(self, stored: Lists) -> None:
        self._stored, self.item = stored, stored.number

    def encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def decode(self, data: memoryview) -> NDArray[Any]:
        numbers: NDArray[Any] = np.frombuffer(data, self.item).copy()
        return numbers
