"""Ends: where each document lies in the concatenation of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from streamplug.types import Int64


class Ends(ABC):
    """Where documents begin and end, counted in tokens, when they lie one after the other.

    Attributes:
        count: Number of documents.
        total: Number of tokens.
    """

    count: int
    total: int

    @abstractmethod
    def before(self, documents: Int64) -> Int64:
        """Return how many tokens lie before some documents; all of them for the number `count`."""

    @abstractmethod
    def find(self, tokens: Int64) -> Int64:
        """Return the documents that some tokens, given by their places, are of."""


@dataclass(frozen=True, slots=True)
class Even(Ends):
    """Documents of one length."""

    length: int
    count: int

    @property
    def total(self) -> int:  # type: ignore[override]  # computed, where the base stores it
        """Number of tokens."""
        return self.length * self.count

    def before(self, documents: Int64) -> Int64:
        return documents * self.length

    def find(self, tokens: Int64) -> Int64:
        return tokens // max(self.length, 1)


class Listed(Ends):
    """Documents of any length."""

    def __init__(self, ends: Int64) -> None:
        """Take the places where documents begin, and the end of the last, shape ``[count + 1]``."""
        self.ends = ends
        self.count, self.total = len(ends) - 1, int(ends[-1])

    def before(self, documents: Int64) -> Int64:
        return np.asarray(self.ends)[documents]

    def find(self, tokens: Int64) -> Int64:
        found: Int64 = np.searchsorted(np.asarray(self.ends), tokens, side="right") - 1
        return found
