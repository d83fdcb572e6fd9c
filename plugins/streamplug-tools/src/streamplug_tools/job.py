"""Opened: what a job reads, and the set that it writes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.stream import Stream
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.column_mapping import Mapped
from streamplug_tools.copy import Change, Input, columns_for, copy
from streamplug_tools.expressions import Expression
from streamplug_tools.options import Columns, Output, Report, Sources, Written, streams
from streamplug_tools.row_access import Table, near
from streamplug_tools.selection_order import Order
from streamplug_tools.sort_keys import evaluated


@dataclass(frozen=True)
class Opened:
    """What a job reads.

    Attributes:
        streams: The sets.
        table: Their samples, of which nothing is read by it.
        folder: For temporary files.
        columns: Which columns are written.
        report: Told of what is done.
    """

    streams: Sequence[Stream]
    table: Table
    folder: Path
    columns: Columns
    report: Report

    def write(self, order: Order, output: Output, what: object) -> Written:
        """Write some samples in some order; arguments and errors are those of `copy`."""
        output = output.like(self.table)
        return self.copy(order, columns_for(self.table, output, self.columns), output, what)

    def copy(
        self,
        order: Order,
        taken: Sequence[Mapped],
        output: Output,
        what: object,
        *,
        change: Change | None = None,
        encodings: Mapping[str, str] | None = None,
    ) -> Written:
        """Write some samples in some order, perhaps changed.

        Args:
            order: Which samples.
            taken: What of them is written.
            output: As for `copying.copy`, as are the other arguments.
            what: See there.
            change: See there.
            encodings: See there.

        Raises:
            StreamplugError: As `copying.copy`.
        """
        return copy(
            [Input(self.streams, order, taken)],
            [self.table],
            output,
            what=what,
            report=self.report,
            change=change,
            encodings=encodings,
            allow_unsafe_types=self.columns.allow_unsafe_types,
        )

    def values(self, expression: Expression, what: str) -> Iterator[tuple[Int64, list[Any]]]:
        """Yield the values of an expression for all samples; see `evaluated`."""
        return evaluated(
            self.streams,
            expression,
            allow_unsafe_types=self.columns.allow_unsafe_types,
            report=self.report,
            what=what,
        )


@contextmanager
def opened(
    sources: Sources, columns: Columns, report: Report, *, whole: bool = False
) -> Iterator[Opened]:
    """Open what a job reads; what is fetched or sorted for it is gone afterwards.

    Args:
        sources: Paths, URLs or streams.
        columns: Which columns are written.
        report: Told of what is done.
        whole: Whether all of it is kept near, since it is read in no order.

    Raises:
        StreamplugError: If it cannot be opened.
    """
    with TemporaryDirectory() as folder:
        read = near(streams(sources), folder, whole=whole)
        table = Table(read, allow_unsafe_types=True, needed=columns.takes)
        yield Opened(read, table, folder, columns, report)
