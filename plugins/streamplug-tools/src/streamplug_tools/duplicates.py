"""Removal of samples whose key an earlier one has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError
from streamplug_tools.expressions import Expression
from streamplug_tools.job import open_job
from streamplug_tools.options import (
    ALL_COLUMNS,
    Columns,
    Output,
    ProgressCallback,
    Sources,
    WriteResult,
    ignore_progress,
)
from streamplug_tools.selection_order import OrderFiles
from streamplug_tools.sort_keys import NumberedKey, each_key, sort_by_key

_IDS_PER_BLOCK = 1 << 20


@suggest_keywords
def dedup(
    sources: Sources,
    output: Output,
    by: str,
    *,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write the first sample of each key, in source order.

    Samples whose key is None are all written, as nothing says that they are equal. Keys are sorted in files.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        by: The key: a Python expression such as the name of a column; see `Expression`.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if keys cannot be sorted.
    """
    expression = Expression(by)
    with open_job(sources, columns, on_progress) as job:
        keys = job.values(expression, "reading keys")
        is_first = _mark_first(each_key(sort_by_key(keys, job.folder)), job.table.size, job.folder)
        lists = OrderFiles(job.folder, [""])
        for begin in range(0, job.table.size, _IDS_PER_BLOCK):
            lists.add("", begin + np.flatnonzero(is_first[begin : begin + _IDS_PER_BLOCK]))
        return job.write(lists.orders[""], output, ["dedup", by])


def _mark_first(keys: Iterable[NumberedKey], size: int, folder: Path) -> NDArray[np.bool_]:
    """Return whether each sample is the first of its key, given sorted keys; the array is a memory map."""
    is_first: NDArray[np.bool_] = np.memmap(folder / "first", np.bool_, "w+", shape=(max(size, 1),))
    before: NumberedKey | None = None
    for now in keys:
        try:
            is_repeated = before is not None and now[0] is not None and bool(before[0] == now[0])
        except ValueError as error:  # of arrays, of which each item is compared
            raise ConfigError(f"the keys cannot be compared: {error}; take xxh64(KEY)") from error
        is_first[now[1]] = not is_repeated
        before = now
    return is_first
