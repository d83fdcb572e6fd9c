"""Writing of a data set from tables, data frames, other data sets and iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import Format
from streamplug.write import Writer, format_of
from streamplug_tools.infer_columns import infer_columns
from streamplug_tools.input_adapters import Batch, iterate_batches


def write_from(
    data: Any,
    *,
    out: str | Path | tuple[str | Path, str],
    columns: Mapping[str, str] | None = None,
    format: str | Format = "mds",  # noqa: A002 - the word that users know
    batch: int | None = None,
    **options: Any,
) -> int:
    """Write all samples of a table, data frame, data set or iterable.

    Args:
        data: Any input of `iterate_batches`: Arrow tables, pandas and Polars data frames, Hugging Face and
            torch data sets, dicts of columns, iterables of samples.
        out: A local path, a URL, or a pair (local path, URL).
        columns: Encoding of each column to write, by its name; None infers encodings of all columns from
            their values: from all values if `data` has columns, else from the first batch.
        format: Name of the shard format, or a format.
        batch: Maximum number of samples per batch; None for a default that depends on `data`.
        **options: Further arguments of `Writer`.

    Returns:
        Number of samples written.

    Raises:
        ConfigError: If `data` is not supported, or no encoding can be inferred for a column.
        EncodeError: If a value does not fit its encoding.
    """
    format_ = format_of(format)
    size = whole_number("batch", batch, 1)
    batches: Iterator[Batch] = iterate_batches(data, size, arrow=format_.takes_arrow)
    infers_columns = columns is None and not options.get("append")
    # Data that are invalid from the start must not remove a data set that they would replace.
    first = next(batches, None) if infers_columns or options.get("exist_ok") else None
    if first is not None:
        batches = chain([first], batches)
    if infers_columns:
        if first is None:
            raise ConfigError(
                "there are no samples from which encodings could follow; give columns="
            )
        columns = infer_columns(
            {name: _column_values(data, name, first) for name in first}, format_
        )
    count = 0
    with Writer(columns=columns, out=out, format=format_, **options) as writer:
        for samples in batches:
            if columns is None:
                writer.write_batch(samples)
            else:
                writer.write_batch({n: samples[n] for n in columns if n in samples})
            count += len(next(iter(samples.values())))
    return count


def _column_values(data: Any, name: str, first: Batch) -> Any:
    """Return all values of a column if `data` has columns, else those of the first batch."""
    if isinstance(data, Mapping):
        return data[_find_name(data, name)]
    if hasattr(data, "schema") and hasattr(data, "column"):  # a table or a record batch of Arrow
        return data.column(name)
    if hasattr(data, "iloc") or hasattr(data, "iter_slices"):  # a data frame
        return data[_find_name(data.columns, name)]
    return first[name]


def _find_name(names: Iterable[Any], name: str) -> Any:
    """Return the name of a column in its table, where it may be no text, such as a number."""
    return next(known for known in names if str(known) == name)
