"""Best-fit packing of a sequence of items into open bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Bin(Generic[T]):
    """A bin.

    Attributes:
        number: Number of bins that were opened before it.
        space: Units of size that are free.
        items: Its items, in the order in which they were added.
        texts: The texts of its items, each after a comma.
        is_full: Whether nothing may be added.
    """

    number: int
    space: int
    items: list[T] = field(default_factory=list)
    texts: str = ""
    is_full: bool = False


class BestFitPacker(Generic[T]):
    """Open bins, each of which is complete after a bounded number of later ones.

    An item goes into the bin that it fills best, the oldest of several; into a new bin if it fits none. A bin
    is complete if it is full, or if `open_bins` bins were opened after it.
    """

    def __init__(self, length: int, open_bins: int, max_items: int | None = None) -> None:
        self.length, self.open_bins, self.max_items = length, open_bins, max_items
        self.bins: list[Bin[T]] = []  # in the order in which they were opened
        self._opened = 0

    def add(self, item: T, size: int, text: str = "") -> None:
        """Add an item of a size in ``[1, length]``, and its text in a state."""
        fitting = (b for b in self.bins if b.space >= size and not b.is_full)
        best = min(fitting, key=lambda b: b.space, default=None)
        if best is None:
            best = Bin(self._opened, self.length)
            self._opened += 1
            self.bins.append(best)
        best.items.append(item)
        best.texts += f",{text}"
        best.space -= size
        self._mark(best)

    def complete(self) -> Bin[T] | None:
        """Return the oldest full bin, or else the oldest one if too many were opened after it."""
        oldest = self.oldest()
        full = next((b for b in self.bins if b.is_full), None)
        if full is None and oldest is not None and self.age(oldest) > self.open_bins:
            return oldest
        return full

    def oldest(self) -> Bin[T] | None:
        """Return the bin that was opened first."""
        return self.bins[0] if self.bins else None

    def age(self, bin_: Bin[T]) -> int:
        """Return the number of bins that were opened since a bin was, including itself."""
        return self._opened - bin_.number

    def restore(self, age: int, items: list[T], size: int, texts: str = "") -> None:
        """Append a bin of a saved age with items of a total size; bins come in the order of opening."""
        self.bins.append(Bin(self._opened - age, self.length - size, items, texts))
        self._mark(self.bins[-1])

    def _mark(self, bin_: Bin[T]) -> None:
        bin_.is_full = not bin_.space or len(bin_.items) == self.max_items
