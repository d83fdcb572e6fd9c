"""Reports of the samples that could not be converted: one JSON file per part, beside the data set."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from streamplug.errors import DataError
from streamplug.plugin import open_storage

_MIN_SAMPLES = 10
"""Number of samples of a part from which its share of failures is checked."""


class FailureReport:
    """The failed samples of one part.

    Attributes:
        kinds: Number of failures of each kind.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._entries: list[dict[str, Any]] = []

    def add(self, kind: str, **details: Any) -> None:
        """Add a failed sample.

        Args:
            kind: Kind of failure, such as ``"timeout"``.
            **details: Plain JSON values that identify the sample; without any, it is only counted.
        """
        self.kinds[kind] += 1
        if details:
            self._entries.append({"kind": kind, **details})

    def write(self, folder: str, part: int, num_samples: int, max_failed: float) -> None:
        """Write the report of a part, replacing an earlier one.

        Args:
            folder: Path or URL of the folder of reports.
            part: Number of the part.
            num_samples: Number of samples of the part, including the failed ones.
            max_failed: Largest permitted share of failed samples, from 0 to 1.

        Raises:
            DataError: If a larger share failed.
        """
        content = {
            "tried": num_samples,
            "kinds": dict(sorted(self.kinds.items())),
            "failed": self._entries,
        }
        name = f"part-{part:05}.json"
        storage = open_storage(folder)
        storage.write(name, json.dumps(content, indent=1).encode())
        if num_samples >= _MIN_SAMPLES and self.kinds.total() > max_failed * num_samples:
            kinds = ", ".join(f"{kind}: {count:,}" for kind, count in self.kinds.most_common(3))
            raise DataError(
                f"{self.kinds.total():,} of {num_samples:,} samples failed ({kinds}), more than --max-failed "
                f"{max_failed:g} allows; see {storage.url_of(name)}"
            )


def count_failures(folder: str) -> dict[str, int]:
    """Return the number of failures of each kind in the reports of all parts."""
    storage = open_storage(folder)
    kinds: Counter[str] = Counter()
    for info in storage.list("part-"):
        kinds.update(json.loads(storage.read(info.key))["kinds"])
    return dict(kinds.most_common())
