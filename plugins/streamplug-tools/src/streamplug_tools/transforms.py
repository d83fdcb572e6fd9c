"""Jobs that write the samples of data sets again: all, in another order, some, or as several sets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from streamplug.errors import ConfigError
from streamplug_tools.expressions import Expression
from streamplug_tools.job import Opened, opened
from streamplug_tools.options import ALL, Columns, Output, Report, Sources, Written, silent
from streamplug_tools.row_access import Table, raw_sizes
from streamplug_tools.selection_order import InOrder, Listed, Lists, Shuffled
from streamplug_tools.sort_keys import numbered, sorted_keys

_AT_ONCE = 1 << 16


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


def shuffle(
    sources: Sources,
    output: Output,
    *,
    seed: int = 0,
    columns: Columns = ALL,
    report: Report = silent,
) -> Written:
    """Write all samples in a random order, in which any can follow any other.

    The order is computed, not held. What is not a directory of raw shards on this machine is first
    fetched into the directory for temporary files, whole.

    Args:
        sources: Paths, URLs or streams.
        output: Where to, and how.
        seed: Tells the order, for a number of samples.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`.
    """
    with opened(sources, columns, report, whole=True) as read:
        return read.write(Shuffled(read.table.size, seed), output, ["shuffle", seed])


def sort(
    sources: Sources,
    output: Output,
    by: str,
    *,
    descending: bool = False,
    columns: Columns = ALL,
    report: Report = silent,
) -> Written:
    """Write all samples by the value of an expression; those of one value stay in their order.

    The values are sorted in files; then samples are fetched as for `shuffle`.

    Args:
        sources: Paths, URLs or streams.
        output: Where to, and how.
        by: A Python expression, such as the name of a column; see `Expression`.
        descending: Whether the largest comes first.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`, or if values cannot be compared.
    """
    expression = Expression(by)
    with opened(sources, columns, report, whole=True) as read:
        order = _sorted(read, expression, descending=descending)
        return read.write(order, output, ["sort", by, descending])


def _sorted(read: Opened, expression: Expression, *, descending: bool) -> Listed:
    lists = Lists(read.folder, [""])
    found = sorted_keys(
        numbered(read.values(expression, "reading keys")), read.folder, reverse=descending
    )
    while some := [number for _, number in islice(found, _AT_ONCE)]:
        lists.add("", np.array(some, np.int64))
    return lists.orders[""]


def select(
    sources: Sources,
    output: Output,
    where: str,
    *,
    columns: Columns = ALL,
    report: Report = silent,
) -> Written:
    """Write the samples for which an expression is true.

    Of all samples only the columns are read that it uses; the others only of those that are written.

    Args:
        sources: Paths, URLs or streams.
        output: Where to, and how.
        where: A Python expression; see `Expression`.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`, or if the expression has no value.
    """
    expression = Expression(where)
    with opened(sources, columns, report) as read:
        lists = Lists(read.folder, [""])
        for ids, found in read.values(expression, "selecting"):
            lists.add("", ids[np.fromiter(map(bool, found), bool, len(found))])
        return read.write(lists.orders[""], output, ["select", where])


# -- several sets ------------------------------------------------------------------------------


def split_by_fractions(
    sources: Sources,
    outputs: Callable[[str], Output],
    fractions: dict[str, float],
    *,
    seed: int = 0,
    columns: Columns = ALL,
    report: Report = silent,
) -> dict[str, Written]:
    """Write several sets that have no sample in common, each a random part of all, in the order of all.

    Args:
        sources: Paths, URLs or streams.
        outputs: Returns where each set goes, by its name.
        fractions: Of all samples, by the names of the sets; what is left of 1 is not written.
        seed: Tells which samples each has.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`.
    """
    total = sum(fractions.values())
    if not fractions or min(fractions.values()) < 0 or not 0 < total < 1 + 1e-9:
        raise ConfigError(f"fractions={fractions}: must be 0 or more, and 1 or less together")
    with opened(sources, columns, report) as read:
        size = read.table.size
        bounds = [round(size * float(share)) for share in np.cumsum([0.0, *fractions.values()])]
        lists, ranks = Lists(read.folder, fractions), Shuffled(size, seed)
        for begin in range(0, size, _AT_ONCE):
            end = min(begin + _AT_ONCE, size)
            rank, ids = ranks.ids(begin, end), np.arange(begin, end)
            for name, low, high in zip(fractions, bounds, bounds[1:]):
                lists.add(name, ids[(rank >= low) & (rank < high)])
        return {
            name: read.write(order, outputs(name), ["split", fractions, seed, name])
            for name, order in lists.orders.items()
        }


def split_by_size(
    sources: Sources,
    outputs: Callable[[str], Output],
    *,
    samples: int | None = None,
    bytes: int | None = None,  # noqa: A002 - the word that users know
    columns: Columns = ALL,
    report: Report = silent,
) -> dict[str, Written]:
    """Write sets of so many samples or bytes each, one after the other; the last may be smaller.

    Args:
        sources: Paths, URLs or streams.
        outputs: Returns where each set goes, by its name: its number.
        samples: How many samples each has.
        bytes: About how many bytes each has, not compressed, as the average of a shard tells.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`.
    """
    if (samples is None) == (bytes is None) or (samples or bytes or 0) < 1:
        raise ConfigError("give samples= or bytes=, of at least 1")
    with opened(sources, columns, report) as read:
        starts = (
            list(range(0, read.table.size, samples))
            if samples is not None
            else _starts_by_bytes(read.table, bytes or 1)
        )
        ends = [*starts[1:], read.table.size]
        return {
            f"{number:05d}": read.write(
                InOrder(end - begin, begin), outputs(f"{number:05d}"), ["split", begin, end]
            )
            for number, (begin, end) in enumerate(zip(starts, ends))
        }


def _starts_by_bytes(table: Table, limit: int) -> list[int]:
    """Return where sets begin, by the bytes of shards and a share of them for the samples inside."""
    sizes = [raw_sizes(index) for index in table.indexes]
    counts = [index.samples for index in table.indexes]
    before = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    first = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    at = np.interp(np.arange(0, before[-1], limit), before, first).astype(np.int64)
    return [int(start) for start in np.unique(at[at < table.size])]
