"""Tells samples as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamplug.config import check_names
from streamplug.jobs.jsonlines import lines, readable
from streamplug.jobs.orders import InOrder
from streamplug.jobs.settings import Columns, Sources
from streamplug.jobs.sources import streams
from streamplug.jobs.table import Table, near
from streamplug.transfer.tempdir import TemporaryDirectory


def as_lines(
    sources: Sources,
    *,
    begin: int = 0,
    end: int | None = None,
    select: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> Iterator[str]:
    """Yield samples as lines of JSON.

    Bytes are ``{"base64": …}``, and so are, as they are stored, values that JSON cannot tell.

    Args:
        sources: Paths, URLs or streams: their samples end to end.
        begin: The first sample; negative ones count from the end.
        end: The one after the last, likewise; None for all.
        select: The columns to tell; None for all.
        drop: Those to leave out.

    Raises:
        StreamplugError: If a set or a column does not exist, or samples cannot be read.
    """
    with TemporaryDirectory() as folder:
        read = near(streams(sources), folder, whole=False)
        taken = Columns(select=select).takes
        # Nothing is read of it.
        table = Table(read, allow_unsafe_types=True, needed=taken)
        check_names(f"select={list(select or ())}", table.url, select or (), table.columns)
        check_names(f"drop={list(drop)}", table.url, drop, table.columns)
        own = table.own_encodings
        names = [n for n in table.columns if taken(n) and n not in drop]
        stored = [n for n in names if not all(readable(c, own=own) for c in table.columns[n])]
        table = Table(read, names, stored=stored)
        first, last, _ = slice(begin, end).indices(table.size)
        for _, batch in table.read(InOrder(table.size), first, last):
            yield from lines({name: batch[name] for name in names})
