"""Opened sources of a job, and the writing of its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.bad_samples import BadSamples
from streamplug_tools.column_mapping import ColumnMapping
from streamplug_tools.copy import BatchTransform, CopyInput, copy, map_table_columns
from streamplug_tools.expressions import Expression
from streamplug_tools.options import (
    Columns,
    Output,
    ProgressCallback,
    Sources,
    WriteResult,
    check_count,
    job_streams,
)
from streamplug_tools.row_access import Table, cache_locally
from streamplug_tools.selection_order import SelectionOrder
from streamplug_tools.sort_keys import evaluate_expression


@dataclass(frozen=True)
class DatasetJob:
    """Opened sources of a job.

    Attributes:
        streams: Source data sets.
        table: Table of their samples, used only for metadata.
        folder: Directory for temporary files.
        columns: Columns to write.
        on_progress: Called with the progress of each task, from time to time.
        bad: Samples that are left out.
    """

    streams: Sequence[Stream]
    table: Table
    folder: Path
    columns: Columns
    on_progress: ProgressCallback
    bad: BadSamples

    def write(self, order: SelectionOrder, output: Output, what: object) -> WriteResult:
        """Write samples in an order; arguments and errors as for `copy`."""
        output = output.like(self.table)
        return self.copy(order, map_table_columns(self.table, output, self.columns), output, what)

    def copy(
        self,
        order: SelectionOrder,
        mappings: Sequence[ColumnMapping],
        output: Output,
        what: object,
        *,
        change: BatchTransform | None = None,
        encodings: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Write samples in an order, optionally transformed.

        Args:
            order: The samples.
            mappings: Columns to write.
            output: As for `streamplug_tools.copy.copy`, as are the other arguments.
            what: See there.
            change: See there.
            encodings: See there.

        Raises:
            StreamplugError: As `streamplug_tools.copy.copy`.
        """
        return copy(
            [CopyInput(self.streams, order, mappings, self.table.content, self.folder)],
            [self.table],
            output,
            what=what,
            on_progress=self.on_progress,
            change=change,
            encodings=encodings,
            allow_unsafe_types=self.columns.allow_unsafe_types,
            bad=self.bad,
        )

    def values(self, expression: Expression, what: str) -> Iterator[tuple[Int64, list[Any]]]:
        """Yield the values of an expression for all samples, see `evaluate_expression`."""
        return evaluate_expression(
            self.streams,
            expression,
            allow_unsafe_types=self.columns.allow_unsafe_types,
            on_progress=self.on_progress,
            what=what,
            content=self.table.content,
            bad=self.bad,
        )


@contextmanager
def open_job(
    sources: Sources,
    columns: Columns,
    on_progress: ProgressCallback,
    *,
    whole: bool = False,
    skip_bad: int = 0,
) -> Iterator[DatasetJob]:
    """Open the sources of a job; temporary files are removed at the end.

    Args:
        sources: Paths, URLs or streams.
        columns: Columns to write.
        on_progress: Called with the progress of each task, from time to time.
        whole: Whether to cache all shards, since they are read in random order.
        skip_bad: Largest number of bad samples that are left out.

    Raises:
        StreamplugError: If it cannot be opened.
    """
    bad = BadSamples(check_count("skip_bad", skip_bad))
    with TemporaryDirectory() as folder:
        read = cache_locally(job_streams(sources), folder, whole=whole)
        table = Table(read, allow_unsafe_types=True, needed=columns.takes)
        yield DatasetJob(read, table, folder, columns, on_progress, bad)
