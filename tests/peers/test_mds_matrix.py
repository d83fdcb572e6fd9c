"""MDS data sets go both ways between streamplug and mosaicml-streaming, down to their bytes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from streamplug import MDSWriter, StreamingDataset

# mosaicml-streaming leaves the closing of files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

ROWS = 18


def image(mode: str, width: int = 9, height: int = 5) -> Image.Image:
    pixels = np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3) * 7
    return Image.fromarray(pixels).convert(mode)


def file(kind: str, mode: str, **size: int) -> bytes:
    out = BytesIO()
    image(mode, **size).save(out, kind)
    return out.getvalue()


def arrays(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [(np.arange(np.prod(s)).reshape(s) - 2).astype(dtype) for s in shapes]


ARRAY_DTYPES = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)]
ARRAY_DTYPES += ["float16", "float32", "float64"]
IMAGES = [image(mode) for mode in ("RGB", "L", "CMYK")]
JPEGS = [file("JPEG", "RGB"), file("JPEG", "L", width=3), *IMAGES]
PNGS = [file("PNG", "RGB"), image("RGBA"), image("1"), image("P")]

VALUES: dict[str, list[Any]] = {
    "bytes": [b"", b"\0", bytes(range(256))],
    "str": ["", "plain", "naïve 流 🚂", "line\nfeed\0nul"],
    "int": [0, -1, 2**63 - 1, -(2**63), True],
    **{
        name: [0, 1, int(np.iinfo(name).min), np.iinfo(name).max, np.dtype(name).type(7)]
        for name in ARRAY_DTYPES
        if "int" in name
    },
    **{
        name: [0, 1.1, -0.0, float("inf"), float("nan"), np.float64(2 / 3), np.float16(0.1)]
        for name in ARRAY_DTYPES
        if "float" in name
    },
    "str_int": [0, -(10**40), 2**200],
    "str_float": [0.1, -0.0, 1e-310, float("inf"), float("nan"), np.float64(1 / 3)],
    "str_decimal": [Decimal("0.10"), Decimal("-1E+400"), Decimal("NaN"), Decimal(10) ** 30],
    "ndarray": [
        *(array for dtype in ARRAY_DTYPES for array in arrays(dtype, (3,))),
        *arrays("int16", (1, 2, 3), (255,), (256,), (1,) * 9),
        np.asfortranarray(arrays("float32", (2, 3))[0]),
        arrays("uint16", (4, 6))[0][::2, ::3],
    ],
    **{f"ndarray:{dtype}": arrays(dtype, (2,), (2, 3), (256,)) for dtype in ARRAY_DTYPES},
    **{f"ndarray:{dtype}:2,3": arrays(dtype, (2, 3)) for dtype in ARRAY_DTYPES},
    "ndarray:uint16:7": arrays("uint16", (7,)),
    "pil": [image(mode) for mode in ("RGB", "L", "1", "RGBA", "I", "F")],
    "jpeg": JPEGS,
    "png": PNGS,
    "jpeg_array": [JPEGS[:1], JPEGS[:2]],
    "jpegarray": [JPEGS[:2]],
    "list[pil]": [[], IMAGES],
    "list[jpeg]": [[], IMAGES],
    "list[png]": [[], [image("RGBA")], [image("1"), image("RGB")]],
    "pkl": [None, {"a": (1, 2)}, {"set"}, 1.5],
    "json": [None, {"b": [1, 2.5, "ü"], "a": None}, [], "text", np.arange(6).reshape(2, 3)],
}
FIXED_ARRAYS = [spec for spec in VALUES if spec.startswith("ndarray:") and spec.count(":") == 2]

IDENTICAL = (None, "bz2", "bz2:1", "br", "br:4", "snappy", "zstd", "zstd:19")
"""Compressions whose bytes are those of mosaicml-streaming too; the header of its gz files holds the time."""
COMPRESSIONS = (*IDENTICAL, "gz", "gz:1")
HASHES = ((), ("sha1",), ("xxh64",), ("sha1", "xxh64"))


@dataclass(frozen=True)
class Case:
    """What both libraries are told to write."""

    spec: str
    compression: str | None
    hashes: tuple[str, ...]
    size_limit: int
    rows: list[dict[str, Any]]

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "columns": {"value": self.spec, "id": "int"},
            "compression": self.compression,
            "hashes": list(self.hashes),
            "size_limit": self.size_limit,
        }


@pytest.fixture
def case(spec: str, compression: str | None, hashes: tuple[str, ...], mosaic: ModuleType) -> Case:
    values = list(islice(cycle(VALUES[spec]), ROWS))
    sizes = [len(codec(mosaic).mds_encode(spec, value)) + 16 for value in values]
    limit = 300 + max(*sizes, sum(sizes) // 3)
    rows = [{"id": number, "value": value} for number, value in enumerate(values)]
    return Case(spec, compression, hashes, limit, rows)


matrix: Callable[..., Any] = lambda test: pytest.mark.parametrize("spec", VALUES)(  # noqa: E731
    pytest.mark.parametrize("compression", COMPRESSIONS)(
        pytest.mark.parametrize("hashes", HASHES, ids=lambda names: "+".join(names) or "-")(test)
    )
)


def codec(mosaic: ModuleType) -> Any:
    return mosaic.base.format.mds.encodings


def write_theirs(mosaic: ModuleType, case: Case, folder: Path) -> Path:
    with mosaic.MDSWriter(out=str(folder), **case.arguments) as writer:
        for row in case.rows:
            writer.write(row)
    return folder


def write_ours(case: Case, folder: Path, *, value_sizes: bool = True) -> Path:
    with MDSWriter(out=folder, value_sizes=value_sizes, **case.arguments) as writer:
        for row in case.rows:
            writer.write(row)
    return folder


def write_ours_in_batches(case: Case, folder: Path, *, stacked: bool = False) -> Path:
    with MDSWriter(out=folder, value_sizes=False, **case.arguments) as writer:
        for part in (case.rows[:1], case.rows[1:8], case.rows[8:8], case.rows[8:]):
            columns = {name: [row[name] for row in part] for name in ("id", "value")}
            writer.write_batch(
                {k: np.array(v) for k, v in columns.items()} if stacked and part else columns
            )
    return folder


def read_theirs(
    mosaic: ModuleType, folder: Path, cache: Path, validate_hash: str | None = None
) -> Iterator[dict[str, Any]]:
    """Read a data set through the part of mosaicml-streaming that downloads and decompresses."""
    stream = mosaic.Stream(
        remote=str(folder),
        local=str(cache),
        split="",
        download_retry=1,
        download_timeout=1,
        validate_hash=validate_hash,
        keep_zip=False,
    )
    stream.apply_default({"split": "", "validate_hash": None})
    for shard in stream.get_shards(mosaic.base.world.World(1, 1, 1, 0), allow_unsafe_types=True):
        stream.prepare_shard(shard)
        yield from (shard[number] for number in range(len(shard)))


def expected(mosaic: ModuleType, case: Case) -> list[Any]:
    encode, decode = codec(mosaic).mds_encode, codec(mosaic).mds_decode
    return [decode(case.spec, encode(case.spec, row["value"])) for row in case.rows]


def form(value: Any) -> Any:
    """Describe a value so that equal descriptions mean equal type and content."""
    if isinstance(value, Image.Image):
        return (value.mode, value.size, value.tobytes())
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if isinstance(value, list):
        return [form(item) for item in value]
    return (type(value), repr(value))


def assert_rows(rows: Sequence[dict[str, Any]], values: list[Any]) -> None:
    assert [list(row) for row in rows] == [["id", "value"]] * len(values)
    assert [form(row["id"]) for row in rows] == [form(n) for n in range(len(values))]
    assert [form(row["value"]) for row in rows] == [form(value) for value in values]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def comparable(mosaic: ModuleType, compression: str | None, folder: Path) -> dict[str, Any]:
    """Return what must be the same whoever wrote a data set, as much as its compression allows."""
    found: dict[str, Any] = files(folder)
    if compression in IDENTICAL:
        return found
    index = json.loads(found.pop("index.json"))
    for entry in index["shards"]:
        packed, info = found.pop(entry["zip_data"]["basename"]), entry["zip_data"]
        raw = mosaic.base.compression.decompress(compression, packed)
        found[entry["raw_data"]["basename"]] = raw
        assert info["bytes"] == len(packed)
        assert {
            algorithm: mosaic.base.hashing.get_hash(algorithm, packed)
            for algorithm in info["hashes"]
        } == info["hashes"]
        info["hashes"] = list(info["hashes"])
        if compression.startswith("gz"):
            found[info["basename"]] = packed[10:]
        else:
            del info["bytes"]
    return {**found, "index": index}


@matrix
def test_same_bytes(case: Case, mosaic: ModuleType, tmp_path: Path) -> None:
    theirs = comparable(mosaic, case.compression, write_theirs(mosaic, case, tmp_path / "theirs"))
    assert len(theirs) >= 3
    ours = write_ours(case, tmp_path / "ours", value_sizes=False)
    assert comparable(mosaic, case.compression, ours) == theirs
    batched = write_ours_in_batches(case, tmp_path / "batched")
    assert files(batched) == files(ours)


@pytest.mark.parametrize("hashes", [("sha1",)])
@pytest.mark.parametrize("compression", [None])
@pytest.mark.parametrize("spec", FIXED_ARRAYS)
def test_same_bytes_of_stacked_arrays(case: Case, mosaic: ModuleType, tmp_path: Path) -> None:
    ours = write_ours_in_batches(case, tmp_path / "ours", stacked=True)
    assert files(ours) == files(write_theirs(mosaic, case, tmp_path / "theirs"))


@pytest.mark.parametrize("compression", IDENTICAL)
def test_same_bytes_of_many_columns(
    compression: str | None, mosaic: ModuleType, tmp_path: Path
) -> None:
    arguments = {"columns": {spec: spec for spec in VALUES}, "compression": compression}
    arguments |= {"hashes": ["sha1", "xxh64"], "size_limit": 40_000}
    rows = list(islice(zip(*map(cycle, VALUES.values())), ROWS))
    with mosaic.MDSWriter(out=str(tmp_path / "theirs"), **arguments) as writer:
        for row in rows:
            writer.write(dict(zip(VALUES, row)))
    arguments |= {"value_sizes": False}
    with MDSWriter(out=tmp_path / "ours", **arguments) as writer:
        for row in rows:
            writer.write(dict(zip(VALUES, row)))
    with MDSWriter(out=tmp_path / "batched", **arguments) as writer:
        writer.write_batch(dict(zip(VALUES, zip(*rows))))
    assert len(files(tmp_path / "theirs")) >= 3
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert files(tmp_path / "batched") == files(tmp_path / "theirs")


@matrix
def test_they_read_ours(case: Case, mosaic: ModuleType, tmp_path: Path) -> None:
    ours = write_ours(case, tmp_path / "ours")
    for algorithm in case.hashes or [None]:
        cache = tmp_path / f"cache-{algorithm}"
        rows = list(read_theirs(mosaic, ours, cache, validate_hash=algorithm))
        assert_rows(rows, expected(mosaic, case))


@matrix
def test_we_read_theirs(case: Case, mosaic: ModuleType, tmp_path: Path) -> None:
    folder = write_theirs(mosaic, case, tmp_path / "theirs")
    values = expected(mosaic, case)
    places: list[dict[str, Any]] = [{"remote": str(folder)}, {"local": str(folder)}]
    places += [{"remote": str(folder), "local": str(tmp_path / f"cache-{n}")} for n in case.hashes]
    for place, algorithm in zip(places, [None, None, *case.hashes]):
        dataset = StreamingDataset(
            **place, validate_hash=algorithm, allow_unsafe_types=case.spec == "pkl"
        )
        assert dataset.num_shards >= 2
        assert_rows([dataset[number] for number in range(len(dataset))], values)
        assert_rows(dataset[:], values)
        assert_rows(list(dataset), values)
        assert_batches(dataset, values)


def assert_batches(dataset: StreamingDataset, values: list[Any]) -> None:
    batches = list(dataset.batches(ROWS // 3))
    assert [int(n) for batch in batches for n in batch["id"]] == list(range(len(values)))
    found = [value for batch in batches for value in batch["value"]]
    if values and type(values[0]) is int and isinstance(batches[0]["value"], np.ndarray):
        found = [int(value) for value in found]  # a column of ints is an array of int64
    assert [form(value) for value in found] == [form(value) for value in values]


@pytest.mark.parametrize("hashes", [("sha1", "xxh64")])
@pytest.mark.parametrize("compression", [None])
@pytest.mark.parametrize("spec", [spec for spec in VALUES if spec != "pkl"])
def test_their_local_dataset_reads_ours(case: Case, mosaic: ModuleType, tmp_path: Path) -> None:
    dataset = mosaic.LocalDataset(local=str(write_ours(case, tmp_path / "ours")))
    assert_rows([dataset[number] for number in range(len(dataset))], expected(mosaic, case))


def test_their_streaming_dataset_reads_ours(
    mosaic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # it leaves its locks there
    # All in one, as theirs of several processes can get in each other's way.
    columns = {"id": "int", "text": "str", "array": "ndarray:float32:2,3", "image": "pil"}
    streams = []
    for first, compression in enumerate(COMPRESSIONS):
        with MDSWriter(
            columns=columns,
            out=tmp_path / f"ours-{first}",
            compression=compression,
            hashes=["xxh64"],
            size_limit=2000,
        ) as writer:
            for number in range(100 * first, 100 * first + 40):
                array = np.full((2, 3), number, np.float32)
                row = {"id": number, "text": f"№ {number}", "array": array, "image": IMAGES[1]}
                writer.write(row)
        places = {
            "remote": str(tmp_path / f"ours-{first}"),
            "local": str(tmp_path / f"cache-{first}"),
        }
        streams.append(mosaic.Stream(**places))
    dataset = mosaic.StreamingDataset(
        streams=streams, batch_size=4, shuffle=True, validate_hash="xxh64"
    )
    assert dataset.num_shards >= 3 * len(COMPRESSIONS)
    rows = sorted(dataset, key=lambda row: row["id"])
    ids = [100 * first + number for first in range(len(COMPRESSIONS)) for number in range(40)]
    assert [row["id"] for row in rows] == ids
    assert [row["text"] for row in rows] == [f"№ {number}" for number in ids]
    assert all((row["array"] == row["id"]).all() for row in rows)
    assert {form(row["image"]) for row in rows} == {form(IMAGES[1])}
