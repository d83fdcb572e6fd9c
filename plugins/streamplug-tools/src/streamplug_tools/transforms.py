"""Jobs that write all samples, some, or several data sets, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.config import check_flags, parse_bytes, suggest_keywords, whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import public_url
from streamplug.plugin import absolute_location, output_locations
from streamplug.types import Int64
from streamplug_tools.expressions import Expression
from streamplug_tools.job import DatasetJob, open_job
from streamplug_tools.options import (
    ALL_COLUMNS,
    Columns,
    Output,
    ProgressCallback,
    Sources,
    WriteResult,
    check_count,
    ignore_progress,
)
from streamplug_tools.row_access import Table
from streamplug_tools.selection_order import ListedOrder, OrderFiles, SequentialOrder, ShuffledOrder
from streamplug_tools.sort_keys import sort_by_key
from streamplug_tools.value_hash import xxh64

_IDS_PER_BLOCK = 1 << 16
_FLOATS_AND_TIMES = (float, np.floating, np.datetime64, np.timedelta64)


@suggest_keywords
def convert(
    sources: Sources,
    output: Output,
    *,
    begin: int = 0,
    end: int | None = None,
    skip_bad: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write the samples of one or several data sets, concatenated, as a new one.

    Values whose encoding stays are not decoded: a JPEG file stays the same file. Several processes write; a
    killed run continues where it stopped, and ends with the same bytes.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        begin: First sample, as in a slice: negative values count from the end, and from the end on there are
            no samples.
        end: End, exclusive; negative values count from the end; None for all.
        skip_bad: Number of samples that may be left out because they cannot be read, computed or stored. The
            result lists them.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: If a source cannot be read, a column cannot be written, or the output exists.
    """
    with open_job(sources, columns, on_progress, skip_bad=skip_bad) as job:
        first, last, _ = slice(begin, end).indices(job.table.size)
        return job.write(
            SequentialOrder(max(last - first, 0), first), output, ["convert", first, last]
        )


@suggest_keywords
def shuffle(
    sources: Sources,
    output: Output,
    *,
    seed: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write all samples in a random order, in which any can follow any other.

    The order is computed, not held in memory. What is not a directory of raw shards on this machine is first
    downloaded into the directory for temporary files, in full.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        seed: Shuffle seed.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`.
    """
    seed = check_count("seed", seed)
    with open_job(sources, columns, on_progress, whole=True) as job:
        return job.write(ShuffledOrder(job.table.size, seed), output, ["shuffle", seed])


@suggest_keywords
def sort(
    sources: Sources,
    output: Output,
    by: str,
    *,
    descending: bool = False,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write all samples sorted by an expression; the sort is stable.

    Values are sorted in files; samples are then downloaded as for `shuffle`.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        by: A Python expression, such as the name of a column; see `Expression`.
        descending: Whether to sort in descending order.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if values cannot be compared.
    """
    check_flags(descending=descending)
    expression = Expression(by)
    with open_job(sources, columns, on_progress, whole=True) as job:
        order = _sort_order(job, expression, descending=descending)
        return job.write(order, output, ["sort", by, descending])


def _sort_order(job: DatasetJob, expression: Expression, *, descending: bool) -> ListedOrder:
    lists = OrderFiles(job.folder, [""])
    values = job.values(expression, "reading keys")
    for block in sort_by_key(values, job.folder, reverse=descending):
        lists.add("", block.numbers)
    return lists.orders[""]


@suggest_keywords
def select(
    sources: Sources,
    output: Output,
    where: str,
    *,
    skip_bad: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write the samples for which an expression is true.

    Columns that it uses are read of all samples, the others only of those that are written.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        where: A Python expression; see `Expression`.
        skip_bad: Number of samples that may be left out because they cannot be read, computed or stored. The
            result lists them.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if the expression fails.
    """
    expression = Expression(where)
    with open_job(sources, columns, on_progress, skip_bad=skip_bad) as job:
        lists = OrderFiles(job.folder, [""])
        for ids, values in job.values(expression, "selecting"):
            is_plain = set(map(type, values)) <= {bool}
            truths = values if is_plain else map(expression.is_true, ids.tolist(), values)
            lists.add("", ids[np.fromiter(truths, bool, len(values))])
        return job.write(lists.orders[""], output, ["select", where])


# -- several sets ------------------------------------------------------------------------------


@suggest_keywords
def split_by_fractions(
    sources: Sources,
    outputs: Callable[[str], Output],
    fractions: dict[str, float],
    *,
    by: str | None = None,
    seed: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> dict[str, WriteResult]:
    """Write disjoint random parts of the samples as several data sets, in source order.

    Args:
        sources: Paths, URLs or streams.
        outputs: Returns the output of a data set by its name.
        fractions: Share of all samples by name; the rest is not written.
        by: A key, as a Python expression such as the name of a column; see `Expression`. The part of a sample
            then depends on `xxh64` of its key, the fractions and the seed only: samples of one key are in one
            part, and stay there when the data set grows. The shares are those of the keys, about. None for
            exact shares of the samples, which other samples change.
        seed: Seed of the selection.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if a key is missing, or `by` names no column.
    """
    seed = check_count("seed", seed)
    expression = None if by is None else Expression(by)
    given: Any = fractions  # unchecked so far
    if not isinstance(given, Mapping) or not all(map(_is_number, given.values())):
        raise ConfigError(f"fractions={fractions!r:.60}: expected a dict of numbers by name")
    fractions = {name: float(share) for name, share in fractions.items()}
    total = sum(fractions.values())
    if not fractions or min(fractions.values()) < 0 or not 0 < total < 1 + 1e-9:
        raise ConfigError(
            f"fractions={fractions}: each must be 0 or more, and their sum more than 0 and at most 1"
        )
    output_of = _make_outputs(outputs, fractions)
    with open_job(sources, columns, on_progress) as job:
        lists = OrderFiles(job.folder, fractions)
        if expression is None:
            size, order = job.table.size, ShuffledOrder(job.table.size, seed)
            bounds = [round(size * share) for share in np.cumsum([0.0, *fractions.values()])]
            blocks: Iterator[tuple[Int64, NDArray[Any]]] = (
                (ids, order.ids(ids[0], ids[-1] + 1)) for ids in _id_blocks(size)
            )
        else:
            bounds = _hash_bounds(fractions.values())
            blocks = _key_hashes(job, expression, seed)
        for ids, ranks in blocks:
            for name, low, high in zip(fractions, bounds, bounds[1:]):
                lists.add(name, ids[(ranks >= low) & (ranks < high)])
        shares = [*fractions.items()]  # in their order, which decides over the samples of each
        what = ["split", shares, seed] if by is None else ["split by", by, shares, seed]
        return {
            name: job.write(order, output_of[name], [*what, name])
            for name, order in lists.orders.items()
        }


def _id_blocks(size: int) -> Iterator[Int64]:
    for begin in range(0, size, _IDS_PER_BLOCK):
        yield np.arange(begin, min(begin + _IDS_PER_BLOCK, size))


def _hash_bounds(shares: Iterable[float]) -> list[int]:
    """Return the first hash of each part, and the end of the last; hashes are from 0 to 2**64 - 1.

    >>> _hash_bounds([0.75, 0.25]) == [0, 3 << 62, 1 << 64]
    True
    """
    sums = [0.0, *accumulate(shares)]
    return [1 << 64 if total > 1 - 1e-9 else int(total * 2.0**64) for total in sums]


def _key_hashes(
    job: DatasetJob, expression: Expression, seed: int
) -> Iterator[tuple[Int64, NDArray[np.object_]]]:
    """Yield sample numbers and the hashes of their keys.

    Raises:
        ConfigError: If the key is no column's, or missing, or has no hash.
    """
    known = job.table.columns
    expression = expression.for_columns(known)
    is_number = "number" not in known and expression.uses_number
    if is_number or not expression.columns(known):
        raise ConfigError(
            f"by={expression.text!r:.200}: expected a key of columns, such as the name of one; the "
            "numbers of samples change when others come or go"
        )
    for ids, keys in job.values(expression, "reading keys"):
        hashes = np.empty(len(keys), object)  # not uint64, which cannot be compared with 2**64
        for position, key in enumerate(keys):
            # NaN and NaT are not equal to themselves.
            if key is None or (isinstance(key, _FLOATS_AND_TIMES) and key != key):  # noqa: PLR0124
                raise ConfigError(
                    f"by={expression.text!r:.200}: sample {ids[position]} has no key, but {key}; give such "
                    "samples a key of their own, such as url or id"
                )
            try:
                hashes[position] = xxh64(key, seed)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"by={expression.text!r:.200}: sample {ids[position]}: {error}"
                ) from error
        yield ids, hashes


@suggest_keywords
def split_by_size(
    sources: Sources,
    outputs: Callable[[str], Output],
    *,
    samples: int | None = None,
    bytes: float | str | None = None,  # noqa: A002 - the word that users know
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> dict[str, WriteResult]:
    """Write consecutive data sets of a number of samples or bytes; the last may be smaller.

    Args:
        sources: Paths, URLs or streams.
        outputs: Returns the output of a data set by its name, a number.
        samples: Samples per data set.
        bytes: Approximate uncompressed bytes per data set, by the average of each shard: a whole number, or
            text such as ``"1gb"``.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`.
    """
    sizes: list[Any] = [size for size in (samples, bytes) if size is not None]
    is_small = any(_is_number(size) and size < 1 for size in sizes)
    limit = None if bytes is None or is_small else parse_bytes(bytes, "bytes")
    if len(sizes) != 1 or is_small or limit == 0:
        raise ConfigError("give samples= or bytes=, of at least 1")
    samples = whole_number("samples", samples, 1)
    with open_job(sources, columns, on_progress) as job:
        starts = (
            list(range(0, job.table.size, samples))
            if samples is not None
            else _split_points(job.table, limit or 1)
        )
        ends = [*starts[1:], job.table.size]
        output_of = _make_outputs(outputs, [f"{number:05d}" for number in range(len(starts))])
        return {
            name: job.write(SequentialOrder(end - begin, begin), output, ["split", begin, end])
            for (name, output), begin, end in zip(output_of.items(), starts, ends)
        }


def _make_outputs(outputs: Callable[[str], Output], names: Iterable[str]) -> dict[str, Output]:
    """Return the outputs of several data sets.

    Raises:
        ConfigError: If two are at one place, where the second would replace the first.
    """
    output_of = {name: outputs(name) for name in names}
    name_of: dict[str, str] = {}
    for name, output in output_of.items():
        place = absolute_location(output_locations(output.out)[-1])
        if name_of.setdefault(place, name) != name:
            raise ConfigError(
                f"outputs= gives {public_url(place)!r} for {name_of[place]!r} and {name!r}; have it return "
                "another place for each name"
            )
    return output_of


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _split_points(table: Table, limit: int) -> list[int]:
    """Return the first sample of each data set, interpolated within shards."""
    sizes = [index.raw_shard_bytes for index in table.indexes]
    counts = [index.samples for index in table.indexes]
    before = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    first = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    at = np.interp(np.arange(0, before[-1], limit), before, first).astype(np.int64)
    return [int(start) for start in np.unique(at[at < table.size])]
