"""What the sides of Parquet of bench_formats.py do.

Each kind of input is written by all: dicts, one by one or in a list; columns, numbers as arrays of NumPy
and text as a list; a table of Arrow. All make one file with row groups of `GROUP` rows. datasets always
compresses by snappy, with dictionaries, statistics, page indexes and pages cut by content; streamplug by
zstd unless told, with none of these, and a checksum of each page.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from format_sides import (
    BATCH,
    READ,
    SIZE_LIMIT,
    FormatSides,
    Pass,
    Rows,
    Side,
    at_random,
    counted,
    rows_of,
)

GROUP = 7000
"""Rows of about 1 MB, the default of streamplug."""


def parquet_writer(folder: Path, format_: str = "parquet", size_limit: int = 1 << 26) -> Any:
    from streamplug import Writer

    columns = {"id": "int64", "ratio": "double", "text": "string"}
    return Writer(out=folder, columns=columns, format=format_, size_limit=size_limit, exist_ok=True)


def as_zstd(folder: Path) -> Any:
    return parquet_writer(folder, f"parquet:{GROUP}")


def as_snappy(folder: Path) -> Any:
    return parquet_writer(folder, f"parquet:{GROUP},compression=snappy")


def in_columns(rows: Rows) -> dict[str, Any]:
    import numpy as np

    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return columns | {name: np.array(columns[name]) for name in ("id", "ratio")}


def in_table(rows: Rows) -> Any:
    import pyarrow as pa

    return pa.table(in_columns(rows))


Written = Callable[[Any, Any], object]


def ours(
    writer: Callable[[Path], Any], given: Callable[[Rows], Any], write: Written
) -> Callable[[Path, Rows], Pass]:
    def make(folder: Path, rows: Rows) -> Pass:
        data = given(rows)

        def once() -> int:
            with writer(folder) as out:
                write(out, data)
            return len(rows)

        return once

    return make


def write_rows(out: Any, rows: Rows) -> None:
    for row in rows:
        out.write(row)


def write_whole(out: Any, data: Any) -> None:
    from streamplug_tools import iterate_batches

    for columns in iterate_batches(data, arrow=True):
        out.write_batch(columns)


def write_batches(out: Any, columns: Mapping[str, Any]) -> None:
    for start in range(0, len(columns["id"]), GROUP):
        out.write_batch({name: each[start : start + GROUP] for name, each in columns.items()})


def hf() -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets


def hf_opened(folder: Path, *, streaming: bool) -> Any:
    files = sorted(map(str, folder.glob("*.parquet")))
    options = {"streaming": True} if streaming else {"cache_dir": str(folder / "hf")}
    return hf().load_dataset("parquet", data_files=files, split="train", **options)


def hf_samples(folder: Path, rows: Rows) -> Pass:
    dataset = hf_opened(folder, streaming=True).shuffle(buffer_size=1000, seed=1)
    return lambda: counted(dataset)


def hf_batches(folder: Path, rows: Rows) -> Pass:
    dataset = hf_opened(folder, streaming=True).shuffle(buffer_size=1000, seed=1)
    return lambda: sum(len(batch["id"]) for batch in dataset.with_format("numpy").iter(BATCH))


def hf_access(folder: Path, rows: Rows) -> Pass:
    return at_random(hf_opened(folder, streaming=False), rows)


def theirs(
    given: Callable[[Rows], Any], write: Callable[[Any, str], object]
) -> Callable[[Path, Rows], Pass]:
    def make(folder: Path, rows: Rows) -> Pass:
        folder.mkdir(exist_ok=True)
        data = given(rows)

        def once() -> int:
            write(data, str(folder / "x.parquet"))
            return len(rows)

        return once

    return make


def hf_writer(write: Written) -> Callable[[Any, str], object]:
    def once(data: Any, path: str) -> None:
        from datasets.arrow_writer import ParquetWriter

        writer = ParquetWriter(path=path, writer_batch_size=GROUP)
        write(writer, data)
        writer.finalize()

    return once


def write_tables(writer: Any, table: Any) -> None:
    for start in range(0, len(table), GROUP):
        writer.write_table(table[start : start + GROUP])


def hf_rows(rows: Rows, path: str) -> None:
    hf().Dataset.from_list(rows).to_parquet(path, batch_size=GROUP)


def hf_generator(rows: Rows, path: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        dataset = hf().Dataset.from_generator(lambda: iter(rows), cache_dir=cache)
        dataset.to_parquet(path, batch_size=GROUP)


def hf_columns(columns: Mapping[str, Any], path: str) -> None:
    hf().Dataset.from_dict(dict(columns)).to_parquet(path, batch_size=GROUP)


def hf_table(table: Any, path: str) -> None:
    hf().Dataset(table).to_parquet(path, batch_size=GROUP)


def arrow_table(data: Any, path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(data) if isinstance(data, list) else pa.table(data)
    pq.write_table(table, path, row_group_size=GROUP)


def arrow_batches(folder: Path, rows: Rows) -> Pass:
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))

    def read() -> int:
        each = (batch for f in files for batch in pq.ParquetFile(f).iter_batches(BATCH))
        return sum(len(batch.to_pydict()["id"]) for batch in each)

    return read


def write_sides() -> Iterator[Side]:
    kinds: tuple[tuple[str, Any, Any, tuple[tuple[str, Any], ...]], ...] = (
        (
            "write",
            lambda rows: rows,
            write_rows,
            (("ParquetWriter", hf_writer(write_rows)), ("from_generator", hf_generator)),
        ),
        ("lists", lambda rows: rows, write_whole, (("from_list", hf_rows),)),
        (
            "columns",
            in_columns,
            write_batches,
            (("ParquetWriter", hf_writer(write_batches)), ("from_dict", hf_columns)),
        ),
        (
            "tables",
            in_table,
            write_whole,
            (("ParquetWriter", hf_writer(write_tables)), ("Dataset", hf_table)),
        ),
    )
    for what, given, write, others in kinds:
        yield Side(what, "streamplug, snappy", ours(as_snappy, given, write))
        yield Side(what, "streamplug, zstd", ours(as_zstd, given, write))
        for name, other in others:
            yield Side(what, f"datasets, {name}, snappy", theirs(given, other), "datasets")
        yield Side(what, "pyarrow, snappy", theirs(given, arrow_table), "pyarrow")


def write_set(folder: Path, rows: Rows) -> None:
    with parquet_writer(folder, size_limit=SIZE_LIMIT) as out:
        write_rows(out, rows)


PARQUET = FormatSides(
    write_set,
    (
        *READ,
        Side("samples", "datasets, streaming", hf_samples, "datasets"),
        Side("batches", "datasets, streaming, numpy", hf_batches, "datasets"),
        Side("batches", "pyarrow, in order, to_pydict", arrow_batches, "pyarrow"),
        Side("access", "datasets, from its cache", hf_access, "datasets"),
        *write_sides(),
    ),
    lambda count: rows_of(10 * count),
)
