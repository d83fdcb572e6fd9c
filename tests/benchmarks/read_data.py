"""The data sets of bench_read.py and bench_landing.py: what is in them, and how each library stores them."""

from __future__ import annotations

import json
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 1000
SHARD_BYTES, PHOTO_SHARD_BYTES = 1 << 26, 1 << 24
SAMPLES_PER_TAR, PHOTOS_PER_TAR = 5_000, 350
LENGTH = 2048
JPEG_BYTES = 12_000
MOST_IN_TARS = 40_000
"""Samples written to tar files: at the rate at which they are read, more are not reached."""

PHOTO_SIZE, PHOTO_QUALITY = (500, 375), 90

Columns = dict[str, Any]


# -- what is in them ----------------------------------------------------------------------


def _jpeg(rng: np.random.Generator, count: int) -> Columns:
    sizes = rng.integers(JPEG_BYTES // 2, JPEG_BYTES * 3 // 2, count).tolist()
    return {"image": [rng.bytes(size) for size in sizes]}


def _tokens(rng: np.random.Generator, count: int) -> Columns:
    return {"tokens": rng.integers(0, 1 << 16, (count, LENGTH), np.uint16)}


def _small(rng: np.random.Generator, count: int) -> Columns:
    numbers = rng.integers(0, 1 << 40, count)
    names = [f"name {number % 100_003}" for number in numbers.tolist()]
    return {"id": numbers, "name": names, "score": rng.random(count)}


def _documents(rng: np.random.Generator, count: int) -> Columns:
    lengths = rng.integers(50, 2000, count).tolist()
    return {"tokens": [rng.integers(0, 1 << 16, length, np.uint16) for length in lengths]}


def _table(rng: np.random.Generator, count: int) -> Columns:
    return {f"c{n:02}": rng.random(count, np.float32) for n in range(40)}


def _photos(_rng: np.random.Generator, count: int) -> Columns:
    from photographs import files_of

    return {"image": files_of(PHOTO_SIZE, PHOTO_QUALITY, count)}


KINDS: dict[str, tuple[int, dict[str, str], Callable[[np.random.Generator, int], Columns]]] = {
    "jpeg": (8_000, {"image": "bytes"}, _jpeg),
    "tokens": (100_000, {"tokens": f"ndarray:uint16:{LENGTH}"}, _tokens),
    "small": (500_000, {"id": "int", "name": "str", "score": "float64"}, _small),
    "documents": (50_000, {"tokens": "ndarray:uint16"}, _documents),
    "table": (50_000, {f"c{n:02}": "float32" for n in range(40)}, _table),
    "photos": (12_288, {"image": "bytes"}, _photos),
}
READ = ("jpeg", "tokens", "small", "documents", "table")
"""What bench_read.py reads; it decodes no images."""


def blocks(kind: str, samples: int) -> Iterator[Columns]:
    """Yield the samples of a data set column by column, some at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, samples, ROWS):
        yield KINDS[kind][2](rng, min(ROWS, samples - start))


def rows(kind: str, samples: int) -> Iterator[dict[str, Any]]:
    """Yield them one by one, numbers as Python has them."""
    for columns in blocks(kind, samples):
        lists = [
            value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value
            for value in columns.values()
        ]
        for values in zip(*lists):
            yield dict(zip(columns, values))


# -- how they are stored ------------------------------------------------------------------


def shard_bytes(kind: str) -> int:
    return PHOTO_SHARD_BYTES if kind == "photos" else SHARD_BYTES


def build_mds(folder: Path, kind: str, samples: int) -> None:
    from streamplug import MDSWriter

    with MDSWriter(columns=KINDS[kind][1], out=folder, size_limit=shard_bytes(kind)) as writer:
        for columns in blocks(kind, samples):
            writer.write_batch(columns)


def _items(kind: str, samples: int) -> Iterator[Any]:
    """Yield what litdata stores: tokens as they are, else dicts."""
    for row in rows(kind, samples):
        yield row["tokens"] if kind == "tokens" else row


def build_litdata(folder: Path, kind: str, samples: int) -> None:
    import litdata

    litdata.optimize(
        fn=partial(_items, kind),
        inputs=[samples],
        output_dir=str(folder),
        chunk_bytes=shard_bytes(kind),
        item_loader=litdata.TokensLoader() if kind == "tokens" else None,
        num_workers=1,
        verbose=False,
    )


def build_webdataset(folder: Path, kind: str, samples: int) -> None:
    folder.mkdir(parents=True)
    members = islice(rows(kind, samples), MOST_IN_TARS)
    number, shard = 0, 0
    per_tar = PHOTOS_PER_TAR if kind == "photos" else SAMPLES_PER_TAR
    while taken := list(islice(members, per_tar)):
        with tarfile.open(folder / f"{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in taken:
                name, data = _member(row)
                info = tarfile.TarInfo(f"{number:09}.{name}")
                info.size = len(data)
                tar.addfile(info, BytesIO(data))
                number += 1
        shard += 1


def _member(row: Mapping[str, Any]) -> tuple[str, bytes]:
    if "image" in row:
        return "jpg", row["image"]
    if "tokens" in row:
        return "bin", row["tokens"].tobytes()
    return "json", json.dumps(row).encode()


def build_arrow(folder: Path, kind: str, samples: int) -> None:
    import datasets
    import pyarrow as pa

    parts = [pa.table({n: _arrow(v) for n, v in part.items()}) for part in blocks(kind, samples)]
    datasets.Dataset(pa.concat_tables(parts).combine_chunks()).save_to_disk(str(folder))


def build_lance(folder: Path, kind: str, samples: int) -> None:
    import lancedb
    import pyarrow as pa

    parts = [pa.table({n: _arrow(v) for n, v in part.items()}) for part in blocks(kind, samples)]
    lancedb.connect(str(folder)).create_table("bench", pa.concat_tables(parts))


def _arrow(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.array(values)


def build_arrayrecord(folder: Path, kind: str, samples: int) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    folder.mkdir(parents=True)
    # As its documentation asks for where records are read at random.
    writer = ArrayRecordWriter(str(folder / "bench.array_record"), "group_size:1,uncompressed")
    for row in rows(kind, samples):
        name, data = _member(row)
        writer.write(pickle.dumps(row) if name == "json" else data)
    writer.close()


def build_folder(folder: Path, kind: str, samples: int) -> None:
    """Write images as files in one folder for each class."""
    for number, row in enumerate(rows(kind, samples)):
        (parent := folder / f"class{number % 10}").mkdir(parents=True, exist_ok=True)
        (parent / f"{number:06}.jpg").write_bytes(row["image"])


LAYOUTS: dict[str, tuple[Sequence[str], Callable[[Path, str, int], None]]] = {
    "mds": ((), build_mds),
    "folder": ((), build_folder),
    "litdata": (("litdata",), build_litdata),
    "webdataset": ((), build_webdataset),
    "arrow": (("datasets",), build_arrow),
    "lance": (("lancedb",), build_lance),
    "arrayrecord": (("grain", "array_record"), build_arrayrecord),
}
