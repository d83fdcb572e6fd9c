"""Small data sets of each format, whose files are fuzzed one at a time."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamplug import MDSWriter, Writer

GOLDEN = Path(__file__).parents[2] / "plugins/streamplug-litdata/tests/golden/0.2.76"
ROWS = [{"id": n, "number": n / 2, "text": f"text {n}"} for n in range(6)]
COLUMNS = {"id": "int", "number": "float64", "text": "str"}


def write_mds(out: Path, **options: Any) -> None:
    columns = {**COLUMNS, "array": "ndarray", "json": "json"}
    with MDSWriter(out=out, columns=columns, max_samples_per_shard=3, **options) as writer:
        for row in ROWS:
            writer.write({**row, "array": np.arange(row["id"]), "json": {"a": [row["id"]]}})


def write_as(kind: str, columns: dict[str, str] = COLUMNS) -> Callable[[Path], None]:
    def write(out: Path) -> None:
        with Writer(out=out, columns=columns, format=kind, max_samples_per_shard=3) as writer:
            for row in ROWS:
                values = {"__key__": f"{row['id']}", "txt": row["text"], **row}
                writer.write({name: values[name] for name in columns})

    return write


def write_text(name: str, text: str) -> Callable[[Path], None]:
    def write(out: Path) -> None:
        out.mkdir(parents=True)
        (out / name).write_text(text)

    return write


def write_tar(out: Path) -> None:
    out.mkdir(parents=True)
    array = io.BytesIO()
    np.save(array, np.arange(3))
    with tarfile.open(out / "a.tar", "w") as tar:
        for row in ROWS[:2]:
            values = {
                "json": json.dumps(row).encode(),
                "txt": b"text",
                "cls": b"3",
                "npy": array.getvalue(),
            }
            for suffix, data in values.items():
                member = tarfile.TarInfo(f"{row['id']:04}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def write_tar_lists(out: Path) -> None:
    write_tar(out)
    with tarfile.open(out / "a.tar") as tar:
        lines = [f"{m.name.partition('.')[2]} {m.offset_data} {m.size} {m.name}" for m in tar]
    (out / "a.idx").write_text("\n".join([f"v1.2 {len(lines)}", " ".join(lines)]))
    entry = {"url": "a.tar", "nsamples": 2}
    (out / "shardindex.json").write_text(json.dumps({"wids_version": 1, "shardlist": [entry]}))


def write_energon_lists(out: Path) -> None:
    write_tar(out)
    with tarfile.open(out / "a.tar") as tar:
        starts = [m.offset for m in tar if m.name.endswith(".json")]
        np.array([*starts, tar.offset], "<u8").tofile(out / "a.tar.idx")
    (out / ".nv-meta").mkdir()
    (out / ".nv-meta" / ".info.yaml").write_text('{"shard_counts": {"a.tar": 2}}')


def write_parquet(out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True)
    table = pa.table(
        {
            **{name: [row[name] for row in ROWS] for name in COLUMNS},
            "list": [[1], [], None, [2, 3], [4], [5]],
        }
    )
    pq.write_table(table, out / "a.parquet", row_group_size=3)


def write_litdata(out: Path) -> None:
    from streamplug_litdata import chunk_compression  # noqa: F401

    out.mkdir(parents=True)
    rows = [
        np.array([8, 3], "<u4").tobytes() + row["id"].to_bytes(8, "little") + b"abc" for row in ROWS
    ]
    ends = 4 * (len(rows) + 2) + np.cumsum([0, *map(len, rows)])
    data = np.array([len(rows), *ends], "<u4").tobytes() + b"".join(rows)
    (out / "chunk-0-0.bin").write_bytes(data)
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {
        "type": "builtins.dict",
        "context": json.dumps(["a", "b"]),
        "children_spec": [leaf, leaf],
    }
    config = {
        "chunk_bytes": 1000,
        "chunk_size": None,
        "compression": None,
        "data_format": ["int", "bytes"],
        "data_spec": json.dumps([1, spec]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
    }
    chunk = {
        "chunk_bytes": len(data),
        "chunk_size": len(rows),
        "dim": None,
        "filename": "chunk-0-0.bin",
    }
    (out / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))


def copy_litdata(layout: str) -> Callable[[Path], None]:
    def copy(out: Path) -> None:
        import streamplug_litdata  # noqa: F401
        import streamplug_zstandard  # noqa: F401

        shutil.copytree(GOLDEN / layout, out)

    return copy


def write_delta(out: Path) -> None:
    import deltalake
    import pyarrow as pa

    columns = {name: [row[name] for row in ROWS] for name in COLUMNS}
    table = pa.table({**columns, "part": ["a"] * len(ROWS)})
    for mode in ("error", "append"):
        deltalake.write_deltalake(str(out), table, mode=mode, partition_by=["part"])


def write_iceberg(out: Path) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    table = pa.table({name: [row[name] for row in ROWS] for name in COLUMNS})
    place = {"uri": "sqlite:///:memory:", "warehouse": f"file://{out.parent}"}
    with SqlCatalog("fuzz", **place) as catalog:
        catalog.create_namespace("n")
        catalog.create_table("n.t", schema=table.schema, location=f"file://{out}").append(table)
    latest = max((out / "metadata").glob("*.metadata.json"))
    (out / "metadata" / "version-hint.text").write_text(latest.name)


def write_view(out: Path) -> None:
    from streamplug_views import View

    source = out.with_name("source")
    if not source.exists():
        write_mds(source)
    View.of(source).where("id % 2").commit(out)


def media() -> dict[str, list[Any]]:
    """Return values of the encodings of images, video and audio."""
    from PIL import Image
    from streamplug_testing.media import make_media

    clip = make_media()

    image = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    return {
        "jpeg": [image],
        "png": [image],
        "pil": [image],
        "jpeg_array": [[image]],
        "list[pil]": [[image, image]],
        "list[png]": [[image, image]],
        "list[jpeg]": [[image]],
        "video": [clip],
        "audio": [clip],
    }


def tensors() -> dict[str, list[Any]]:
    """Return values of the encodings of tensors."""
    import streamplug_torch  # noqa: F401
    import torch  # noqa: TID251

    values = [torch.arange(6, dtype=torch.int16).reshape(2, 3), torch.ones(2, dtype=torch.bool)]
    return {"tensor": values, "tensor:int16": values[:1], "tensor:int16:2,3": values[:1]}


@dataclass(frozen=True)
class DataSet:
    """How a data set is written and read.

    Attributes:
        write: Writes it in a folder, which does not exist.
        format: Its format; None if it has an index.
        is_remote: Whether it is read from storage rather than as local files.
        options: Further options of `StreamingDataset`.
    """

    write: Callable[[Path], None]
    format: str | None = None
    is_remote: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def where(self, folder: Path) -> dict[str, Any]:
        """Return the options that name the data set."""
        where = {"remote" if self.is_remote or self.format else "local": str(folder)}
        return where if self.format is None else {**where, "format": self.format}


CSV = "id,number,text\n" + "".join(f'{r["id"]},{r["number"]},"{r["text"]}"\n' for r in ROWS)
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
NUMBERS = {"id": "int", "text": "str"}
DATA_SETS = {
    "mds": DataSet(write_mds),
    "mds-gz": DataSet(lambda out: write_mds(out, compression="gz", hashes=[])),
    "text-json": DataSet(write_as("json", NUMBERS)),
    "text-xsv": DataSet(write_as("csv", NUMBERS)),
    "plain-csv": DataSet(write_text("a.csv", CSV), "csv"),
    "plain-jsonl": DataSet(write_text("a.jsonl", JSONL), "jsonl"),
    "tar": DataSet(write_tar, "webdataset"),
    "tar-wids": DataSet(write_tar_lists, "webdataset:idx"),
    "tar-energon": DataSet(write_energon_lists, "webdataset:idx"),
    "tar-indexed": DataSet(write_as("webdataset", {"__key__": "str", "txt": "str"})),
    "parquet": DataSet(write_parquet, "parquet"),
    "litdata": DataSet(write_litdata, "litdata"),
    "delta": DataSet(write_delta, "delta"),
    "iceberg": DataSet(write_iceberg, "iceberg"),
    "view": DataSet(write_view, "view"),
    "mds-ranges": DataSet(write_mds, is_remote=True, options={"access": "range"}),
    "json-ranges": DataSet(write_as("json", NUMBERS), is_remote=True, options={"access": "range"}),
    "tar-ranges": DataSet(
        write_as("webdataset", {"__key__": "str", "txt": "str"}),
        is_remote=True,
        options={"access": "range"},
    ),
    **{
        f"litdata-{layout}": DataSet(copy_litdata(layout), "litdata")
        for layout in ("files", "frames", "items", "packed", "packed-rows", "rows", "tokens")
    },
}
