"""Writes data sets again: in another format, with other columns, or several as one."""

from __future__ import annotations

from streamplug.jobs.opened import opened
from streamplug.jobs.orders import InOrder
from streamplug.jobs.settings import ALL, Columns, Output, Report, Sources, Written, silent


def convert(
    sources: Sources,
    output: Output,
    *,
    begin: int = 0,
    end: int | None = None,
    columns: Columns = ALL,
    report: Report = silent,
) -> Written:
    """Write the samples of one or several data sets, end to end, as another.

    Values are not decoded where their encoding stays the same: a JPEG file stays that file. Several
    processes write; a run that was killed goes on where it stood, and ends with the same bytes.

    Args:
        sources: Paths, URLs or streams.
        output: Where to, and how.
        begin: The first sample; negative ones count from the end.
        end: The one after the last, likewise; None for all.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: If a set cannot be read, a column cannot be written, or something is there.
    """
    with opened(sources, columns, report) as read:
        first, last, _ = slice(begin, end).indices(read.table.size)
        return read.write(InOrder(max(last - first, 0), first), output, ["convert", first, last])
