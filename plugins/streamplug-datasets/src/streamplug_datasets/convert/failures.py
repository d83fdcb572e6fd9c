"""What could not be had, and why: a file for each part, beside the data set that lacks it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from streamplug.errors import DataError
from streamplug.plugin import open_storage

_MIN_SAMPLES = 10
"""Parts of fewer samples tell nothing about those to come."""


class Failures:
    """Those of a part.

    Attributes:
        kinds: How many there are of each kind.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._found: list[dict[str, Any]] = []

    def add(self, kind: str, **what: Any) -> None:
        """Note one.

        Args:
            kind: By which it is counted, such as ``"timeout"``.
            **what: What it is about, plain JSON values; without any, it is counted and not listed.
        """
        self.kinds[kind] += 1
        if what:
            self._found.append({"kind": kind, **what})

    def write(self, folder: str, part: int, tried: int, most: float) -> None:
        """Write them to a folder, a path or URL, in place of what was there of this part.

        Args:
            folder: Where to.
            part: Number of the part.
            tried: How many samples it was to have.
            most: Which part of them may fail.

        Raises:
            DataError: If more of them failed.
        """
        content = {"tried": tried, "kinds": dict(sorted(self.kinds.items())), "failed": self._found}
        name = f"part-{part:05}.json"
        storage = open_storage(folder)
        storage.write(name, json.dumps(content, indent=1).encode())
        if tried >= _MIN_SAMPLES and self.kinds.total() > most * tried:
            kinds = ", ".join(f"{kind}: {count:,}" for kind, count in self.kinds.most_common(3))
            raise DataError(
                f"{self.kinds.total():,} of {tried:,} could not be had ({kinds}), more than --max-failed "
                f"{most:g} allows; see {storage.url_of(name)}"
            )


def counted(folder: str) -> dict[str, int]:
    """Return how many failures of each kind there are in the files of all parts."""
    storage = open_storage(folder)
    kinds: Counter[str] = Counter()
    for info in storage.list("part-"):
        kinds.update(json.loads(storage.read(info.key))["kinds"])
    return dict(kinds.most_common())
