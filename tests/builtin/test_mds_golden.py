"""MDS sets that mosaicml-streaming wrote are read, and written again byte for byte."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.plugin import make

GOLDEN = Path(__file__).parents[1] / "golden"
DESCRIBED = json.loads((GOLDEN / "mds.json").read_text("utf-8"))
VALUES = runpy.run_path(str(GOLDEN / "mds_values.py"))
PLUGIN = {
    "br": "streamplug_brotli",
    "snappy": "streamplug_snappy",
    "zstd": "streamplug_zstandard",
    "images": "streamplug_image",
    "made-anew": "streamplug_image",
}
FILES = {"jpeg", "png", "jpeg_array", "jpegarray"}
"""Columns whose values are described as the bytes of image files, and read as images."""


class Golden:
    """One set and what it holds."""

    def __init__(self, name: str) -> None:
        one = DESCRIBED["sets"][name]
        self.folder = GOLDEN / "mds" / name
        self.arguments = {"columns": DESCRIBED["columns"][one["values"]], **one["arguments"]}
        self.rows = [
            {column: VALUES["value"](item) for column, item in row.items()}
            for row in DESCRIBED["rows"][one["values"]]
        ]
        self.index = json.loads((self.folder / "index.json").read_text("utf-8"))

    def expected(self) -> list[dict[str, Any]]:
        return [
            {column: form(as_read(column, row[column])) for column in sorted(row)}
            for row in self.rows
        ]

    def raw(self, folder: Path) -> list[bytes]:
        """Return the shards of this set, decompressed, in the directory where they lie."""
        codec = make("compression", self.arguments["compression"] or "none")
        shards = []
        for entry in self.index["shards"]:
            stored = (entry["zip_data"] or entry["raw_data"])["basename"]
            packed = (folder / stored).read_bytes()
            shards.append(codec.decompress(packed, max_size=entry["raw_data"]["bytes"]))
        return shards


@pytest.fixture(params=DESCRIBED["sets"])
def golden(request: pytest.FixtureRequest) -> Golden:
    if plugin := PLUGIN.get(request.param):
        pytest.importorskip(plugin)
    return Golden(request.param)


def as_read(column: str, value: Any) -> Any:
    if column not in FILES:
        return value
    return (
        [as_read("jpeg", file) for file in value]
        if isinstance(value, list)
        else VALUES["opened"](value)
    )


def form(value: Any) -> Any:
    """Describe a value so that equal descriptions mean equal type and content."""
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if isinstance(value, list):
        return [form(item) for item in value]
    if hasattr(value, "getbands"):
        return (value.mode, value.size, value.tobytes())
    return (type(value), repr(value))


def forms(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{column: form(value) for column, value in sample.items()} for sample in samples]


def test_reads(golden: Golden, tmp_path: Path) -> None:
    algorithms = golden.arguments["hashes"] or [None]
    for algorithm in algorithms:
        dataset = StreamingDataset(
            remote=str(golden.folder),
            local=str(tmp_path / f"cache-{algorithm}"),
            validate_hash=algorithm,
            allow_unsafe_types=True,
        )
        assert forms([dataset[number] for number in range(dataset.size)]) == golden.expected()
        assert forms(dataset[:]) == golden.expected()
        assert forms(list(dataset)) == golden.expected()


def write(golden: Golden, folder: Path) -> Path:
    with MDSWriter(out=folder, value_sizes=False, **golden.arguments) as writer:
        for row in golden.rows:
            writer.write(row)
    return folder


def write_in_batches(golden: Golden, folder: Path) -> Path:
    with MDSWriter(out=folder, value_sizes=False, **golden.arguments) as writer:
        for rows in (golden.rows[:1], [], golden.rows[1:]):
            columns = golden.arguments["columns"]
            writer.write_batch({column: [row[column] for row in rows] for column in columns})
    return folder


@pytest.mark.parametrize("write", [write, write_in_batches])
def test_writes_the_same_bytes(golden: Golden, write: Any, tmp_path: Path) -> None:
    written = write(golden, tmp_path / "written")
    # Compressed, they would depend on the versions of the codecs.
    assert golden.raw(written) == golden.raw(golden.folder)
    index = json.loads((written / "index.json").read_text("utf-8"))
    for entry in [*index["shards"], *golden.index["shards"]]:
        if entry["zip_data"] is not None:
            assert entry["zip_data"].pop("bytes") > 0
            entry["zip_data"]["hashes"] = list(entry["zip_data"]["hashes"])
    assert index == golden.index


def test_writes_the_same_index(tmp_path: Path) -> None:
    golden = Golden("none")
    found = (write(golden, tmp_path / "written") / "index.json").read_bytes()
    assert found == (golden.folder / "index.json").read_bytes()


def test_has_every_encoding() -> None:
    pytest.importorskip("PIL")
    specs = {spec for columns in DESCRIBED["columns"].values() for spec in columns.values()}
    assert len({spec.partition(":")[0] for spec in specs}) == 28
    assert all(len(Golden(name).index["shards"]) >= 2 for name in ("none", "images"))
