"""What the sides of Parquet of bench_formats.py do."""

from __future__ import annotations

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
    at_once,
    at_random,
    counted,
    one_by_one,
)


def parquet_writer(folder: Path) -> Any:
    from streamplug import Writer

    columns = {"id": "int64", "ratio": "double", "text": "string"}
    return Writer(
        out=folder, columns=columns, format="parquet", size_limit=SIZE_LIMIT, exist_ok=True
    )


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


def hf_write(folder: Path, rows: Rows) -> Pass:
    from datasets.arrow_writer import ParquetWriter

    folder.mkdir(exist_ok=True)

    def write() -> int:
        writer = ParquetWriter(path=str(folder / "x.parquet"))
        for row in rows:
            writer.write(row)
        writer.finalize()
        return len(rows)

    return write


def arrow_write(folder: Path, rows: Rows) -> Pass:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)

    def write() -> int:
        pq.write_table(pa.Table.from_pylist(rows), folder / "y.parquet")
        return len(rows)

    return write


def arrow_batches(folder: Path, rows: Rows) -> Pass:
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))

    def read() -> int:
        each = (batch for f in files for batch in pq.ParquetFile(f).iter_batches(BATCH))
        return sum(len(batch.to_pydict()["id"]) for batch in each)

    return read


PARQUET = FormatSides(
    lambda folder, rows: one_by_one(parquet_writer)(folder, rows)(),
    (
        *READ,
        Side("write", "streamplug", one_by_one(parquet_writer)),
        Side("write", "streamplug, write_batch", at_once(parquet_writer)),
        Side("samples", "datasets, streaming", hf_samples, "datasets"),
        Side("batches", "datasets, streaming, numpy", hf_batches, "datasets"),
        Side("batches", "pyarrow, in order, to_pydict", arrow_batches, "pyarrow"),
        Side("access", "datasets, from its cache", hf_access, "datasets"),
        Side("write", "datasets, ParquetWriter", hf_write, "datasets"),
        Side("write", "pyarrow, from_pylist", arrow_write, "pyarrow"),
    ),
)
