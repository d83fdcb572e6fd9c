"""Samples that a job leaves out because they cannot be read, computed or stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial

from streamplug.errors import DataError, EncodeError, NotFound, WriterError
from streamplug.interfaces import Storage
from streamplug.transfer import call_with_retries

BAD_SAMPLE_ERRORS = (DataError, EncodeError)
"""Errors that are those of a sample."""
_REPORTS = "failures"
"""Folder of the reports, beside the parts."""
_HINT = "; skip_bad= leaves out that many such samples"


class BadSampleError(WriterError, DataError):
    """A sample cannot be read, computed or stored; the message names its file and row."""


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that was left out.

    Attributes:
        file: URL of its file.
        row: Number of its row in that file.
        reason: Why it was left out.
    """

    file: str
    row: int
    reason: str


@dataclass
class BadSamples:
    """Samples that were left out.

    Attributes:
        limit: Largest number of them.
        found: The samples.
    """

    limit: int
    found: list[BadSample] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Number of samples that may still be left out."""
        return self.limit - len(self.found)

    def add(self, file: str, row: int, error: Exception) -> None:
        """Leave a sample out.

        Raises:
            BadSampleError: If there are too many.
        """
        reason = f"{type(error).__name__}: {_without_place(str(error), file, row)}"
        self.found.append(BadSample(file, row, reason))
        if self.remaining < 0:
            raise self._too_many(self.found[-1]) from error

    def extend(self, found: list[BadSample]) -> None:
        """Add samples that were left out elsewhere; errors as for `add`."""
        self.found += found
        if self.remaining < 0:
            raise self._too_many(self.found[self.limit])

    def _too_many(self, last: BadSample) -> BadSampleError:
        before = f"{self.limit:,} samples were left out before; " if self.limit else ""
        return BadSampleError(f"{before}{last.file}, row {last.row}: {last.reason}{_HINT}")


def _without_place(message: str, file: str, row: int) -> str:
    """Return a message about a sample without the files and the row that it begins with.

    The files may be those of a cache. What a format says of the row besides its number, such as the line of a
    text, is kept.
    """
    files = rf"^(?:shard \d+ \(.*?\)|{re.escape(file)}): "
    place = rf"{files}sample {row}(?: \(([^()]*)\))?(?:, |: )"
    if found := re.match(place, message, re.DOTALL):
        return f"{found[1]}: {message[found.end() :]}" if found[1] else message[found.end() :]
    return re.sub(files, "", message, count=1, flags=re.DOTALL)


def write_report(home: Storage, part: int, bad: BadSamples) -> None:
    """Write the report of a part beside the data set, or remove an earlier one if no sample is bad."""
    if not bad.found:
        with suppress(NotFound):
            home.delete(_report_key(part))
        return
    content = {"failed": [asdict(sample) for sample in bad.found]}
    data = json.dumps(content, indent=1).encode()
    call_with_retries(partial(home.write, _report_key(part), data))


def read_report(home: Storage, part: int) -> list[BadSample]:
    """Return the samples that were left out of a part."""
    try:
        data = call_with_retries(partial(home.read, _report_key(part)))
    except NotFound:
        return []
    return [BadSample(**sample) for sample in json.loads(data)["failed"]]


def count_reports(home: Storage, limit: int) -> Callable[[int], None]:
    """Return a function that adds the report of a part; it raises BadSampleError above the limit."""
    total = BadSamples(limit)
    # With a limit of 0, there are only reports of parts that an earlier call wrote, with another limit.
    earlier = None if limit else {info.key for info in home.list(f"{_REPORTS}/")}

    def add(part: int) -> None:
        if earlier is None or _report_key(part) in earlier:
            total.extend(read_report(home, part))

    return add


def _report_key(part: int) -> str:
    return f"{_REPORTS}/part-{part:05d}.json"
