"""Parsers behind a checksum, a size or another parser, which damaged files of data sets do not reach."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import pickle
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from streamplug.plugin_kit.codec_errors import parsing
from tests.fuzz.data_sets import write_iceberg

BLOCK = 512

Parser = tuple[str, Callable[[bytes], object], list[bytes]]
"""Name, function and valid inputs of a target."""


def find_parsers(folder: Path) -> Iterator[Parser]:
    """Yield those whose libraries are installed; `folder` is for their files."""
    for find in (_parquet, _deletion_vectors, _manifests, _image_parts, _lerobot, _converters):
        with suppress(ImportError):
            yield from find(folder)


# -- archives ----------------------------------------------------------------------------------


def with_checksums(data: bytes) -> bytes:
    """Return an archive whose headers have the checksums of what is in them."""
    changed, at = bytearray(data), 0
    while at + BLOCK <= len(changed) and any(changed[at : at + BLOCK]):
        changed[at + 148 : at + 156] = b" " * 8
        changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + BLOCK])
        try:
            size = int(changed[at + 124 : at + 136].strip(b"\0 ") or b"0", 8)
        except ValueError:
            break
        at += BLOCK + max(size, 0) + -max(size, 0) % BLOCK
    return bytes(changed)


def make_archives() -> list[bytes]:
    """Return archives with each kind of header, in each dialect."""
    archives = []
    for kind, name in itertools.product(
        (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT),
        ("0000.txt", f"{'d' * 90}/{'f' * 40}.txt"),
    ):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
            member = tarfile.TarInfo(name)
            member.size = 4
            if kind == tarfile.PAX_FORMAT:
                member.pax_headers = {"size": "4", "comment": "ä"}
            tar.addfile(member, io.BytesIO(b"text"))
            for link in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE):
                other = tarfile.TarInfo(f"1{link.decode()}")
                other.type, other.linkname = link, name[-50:]
                tar.addfile(other)
        archives.append(out.getvalue())
    return archives


def with_digest(data: bytes) -> bytes:
    """Return a file of sample locations whose head has the digest of what is in it."""
    from streamplug_webdataset.sample_locations import _HEAD, _digest

    if len(data) < _HEAD.size:
        return data
    *head, _ = _HEAD.unpack(data[: _HEAD.size])
    rest = data[_HEAD.size :]
    return _HEAD.pack(*head, _digest(head[2:], rest)) + rest


# -- Parquet -----------------------------------------------------------------------------------


def _parquet(_folder: Path) -> Iterator[Parser]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from streamplug_parquet import memory_bounds
    from streamplug_parquet.metadata_tables import read_file
    from streamplug_parquet.thrift import check_schema_depth, chunks_of

    words = ["same prefix, one", None, "same prefix, two", "another"] * 10
    lists = [[[1, 2], None], None, [], [[3, 4]]] * 10
    table = pa.table(
        {
            "word": words,
            "list": pa.array(lists, pa.list_(pa.list_(pa.int32()))),
            "number": pa.array(range(40), pa.int64()),
            "pairs": pa.array([[[1, 2], [3, 4]], []] * 20, pa.list_(pa.list_(pa.int32(), 2))),
        }
    )
    codecs = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
    files = []
    for codec, version, encoding in itertools.product(
        codecs,
        ("1.0", "2.0"),
        (None, {"word": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}),
    ):
        out = io.BytesIO()
        pq.write_table(
            table,
            out,
            compression=codec,
            data_page_version=version,
            use_dictionary=encoding is None,
            column_encoding=encoding,
        )
        files.append(out.getvalue())
    footers = [data[-int.from_bytes(data[-8:-4], "little") - 8 :] for data in files]

    def parse_footer(data: bytes) -> None:
        check_schema_depth(data)
        chunks_of(data)

    yield "parquet-footer", parse_footer, footers[:4]

    def read_pages(data: bytes) -> None:
        """Take the first byte as the number of a footer, the rest as the pages in front of it."""
        number, data = data[0] if data else 0, data[1:]
        footer = footers[number % len(footers)]
        decoded_limit, names = memory_bounds.decoded_limit, table.column_names
        # Pages are looked into only if what their headers say may be too large.
        memory_bounds.decoded_limit = lambda _: 8_000 if number < 144 else 1 << 20
        try:
            read_file(data[: -len(footer)] + footer, names)
        finally:
            memory_bounds.decoded_limit = decoded_limit

    yield (
        "parquet-pages",
        read_pages,
        [bytes([n + high]) + data for n, data in enumerate(files) for high in (0, 144)],
    )


def _deletion_vectors(_folder: Path) -> Iterator[Parser]:
    from pyroaring import BitMap64
    from streamplug_parquet.deletion_vectors import _MAGIC, parse_vector

    def parse(data: bytes) -> None:
        with suppress(ValueError):  # which callers turn into ours
            parse_vector(_MAGIC.to_bytes(4, "little") + data, 1 << 16)

    bitmaps = [BitMap64(range(0, 9000, 2)), BitMap64([1, 2, 3, 1 << 40]), BitMap64(range(5000))]
    vectors = [bitmap.serialize() for bitmap in bitmaps]
    yield "deletion-vector", parse, vectors

    from streamplug_delta.deletion_vectors import read_vector

    stored = _MAGIC.to_bytes(4, "little") + vectors[1]
    stored = len(stored).to_bytes(4, "big") + stored + crc32(stored).to_bytes(4, "big")

    def read(data: bytes) -> None:
        descriptor = None
        with suppress(ValueError, RecursionError):  # of json, which is not ours
            descriptor = json.loads(data)
        if isinstance(descriptor, dict):
            read_vector(descriptor, lambda _, start, stop: stored[max(start, 0) : max(stop, 0)])

    inline = {
        "storageType": "i",
        "pathOrInlineDv": _encode_z85(stored[4:-4]),
        "sizeInBytes": len(stored) - 8,
        "cardinality": 4,
    }
    file = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 0,
        "sizeInBytes": len(stored) - 8,
        "cardinality": 4,
    }
    yield "delta-vector", read, [json.dumps(each).encode() for each in (inline, file)]


def _manifests(folder: Path) -> Iterator[Parser]:
    """Manifests of Iceberg: a line with the schema, a byte with the number of records, and the records."""
    from pyiceberg.avro.decoder import StreamingBinaryDecoder
    from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
    from pyiceberg.avro.resolver import construct_reader
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType
    from streamplug_iceberg import manifest_reader
    from streamplug_iceberg.column_bounds import column_bounds

    types = {"id": LongType(), "number": DoubleType(), "text": StringType()}
    columns = Schema(*(NestedField(n, *field) for n, field in enumerate(types.items(), 1)))
    write_iceberg(folder / "iceberg")
    [listed] = (folder / "iceberg/metadata").glob("snap-*.avro")
    [manifest] = manifest_reader.parse_manifest_list(listed.read_bytes())
    paths = {
        "list": listed,
        "entries": folder / "iceberg/metadata" / Path(manifest.manifest_path).name,
    }
    for name, path in paths.items():
        decoder = StreamingBinaryDecoder(path.read_bytes())
        header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        count = decoder.read_int()
        packed = decoder.read_bytes()
        block = manifest_reader._decompress(packed, header.meta["avro.codec"], 1 << 20)

        def parse(data: bytes, name: str = name) -> None:
            schema, _, rest = data.partition(b"\n")
            file = _avro_file(schema, rest[0] if rest else 0, rest[1:])
            with parsing("a manifest"):
                if name == "list":
                    manifest_reader.parse_manifest_list(file)
                else:
                    for entry in manifest_reader.parse_manifest(file, manifest):
                        column_bounds(entry.data_file, columns)

        seed = header.meta["avro.schema"].encode() + b"\n" + bytes([count]) + block
        yield f"iceberg-manifest-{name}", parse, [seed]


def _avro_file(schema: bytes, count: int, block: bytes) -> bytes:
    sync = bytes(16)
    numbers = [len(schema), count, len(block)]
    schema_size, records, block_size = (_avro_int(number) for number in numbers)
    head = b"Obj\1\2\x16avro.schema" + schema_size + schema + b"\0" + sync
    return head + records + block_size + block + sync


def _avro_int(number: int) -> bytes:
    out, number = bytearray(), 2 * number
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _encode_z85(data: bytes) -> str:
    from streamplug_delta.deletion_vectors import _Z85

    padded = np.frombuffer(data + bytes(-len(data) % 4), ">u4").astype(np.int64)
    digits = padded[:, None] // 85 ** np.arange(4, -1, -1) % 85
    return "".join(_Z85[digit] for digit in digits.ravel().tolist())


# -- media -------------------------------------------------------------------------------------


def _image_parts(_folder: Path) -> Iterator[Parser]:
    from PIL import Image
    from streamplug_image import RandomResizedCrop

    crop = RandomResizedCrop((8, 8), scale=(0.05, 0.2), orient=True, max_pixels=1 << 20)

    def decode(data: bytes) -> None:
        crop.decode(data, np.random.default_rng(0))

    seeds = []
    pixels = np.random.default_rng(0).integers(0, 255, (64, 48, 3), np.uint8)
    for mode, options in (
        ("RGB", {}),
        ("L", {"progressive": True}),
        ("CMYK", {}),
        ("RGB", {"subsampling": 0, "restart_marker_blocks": 2}),
    ):
        out, exif = io.BytesIO(), Image.Exif()
        exif[0x0112] = 6  # turned
        Image.fromarray(pixels).convert(mode).save(out, "JPEG", exif=exif, **options)
        seeds.append(out.getvalue())
    yield "image-part", decode, seeds


def _lerobot(folder: Path) -> Iterator[Parser]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from streamplug_av import lerobot_episodes

    info: dict[str, Any] = {
        "fps": 10,
        "features": {"action": {"dtype": "float32"}},
        "data_path": "data/{file_index:03d}.parquet",
    }
    episodes = [{"episode_index": n, "length": 5, "data/file_index": 0} for n in range(2)]
    frames = {"episode_index": [0] * 5 + [1] * 5, "action": [n / 2 for n in range(10)]}
    root = folder / "lerobot"
    for name in ("meta", "data"):
        (root / name).mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, episodes)))
    pq.write_table(pa.table(frames), root / "data/000.parquet")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        whole = path.read_bytes()

        def read(data: bytes, path: Path = path, whole: bytes = whole) -> None:
            path.write_bytes(data)
            try:
                for _ in lerobot_episodes(root):
                    pass
            finally:
                path.write_bytes(whole)

        yield f"lerobot-{path.name}", read, [whole]


# -- files of well-known data sets -----------------------------------------------------------------


def _converters(folder: Path) -> Iterator[Parser]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zstandard
    from PIL import Image
    from streamplug_datasets.convert import bert, cifar10, coco, images, laion400m, text, webvid

    folder /= "converters"
    folder.mkdir()

    def of_file(name: str, read: Callable[[Path], object], *seeds: bytes) -> Parser:
        path = folder / name

        def run(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

        return f"convert-{name}", run, list(seeds)

    annotations = {
        "categories": [{"id": 3}],
        "images": [{"id": 7, "file_name": "7.jpg", "height": 4, "width": 6}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 1.5, 2, 2]}],
    }
    yield of_file("coco.json", coco._images, json.dumps(annotations).encode())

    pickled = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}
    for protocol in (0, 2, 4):
        data = pickle.dumps(pickled, protocol)
        yield of_file(f"cifar{protocol}", lambda path: cifar10.read(str(path)), data)

    pixels = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    for kind, convert in (("jpeg", images.jpeg), ("png", lambda path: images.classes(path, 255))):
        out = io.BytesIO()
        (pixels if kind == "jpeg" else pixels.convert("L")).save(out, kind)
        yield of_file(kind, convert, out.getvalue())

    row = {"status": "success", "jpg": b"\xff\xd8\xff", "width": 8.0, "exif": None}
    row = {laion400m._NAMES.get(name, name): None for name in laion400m.COLUMNS} | row
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row, row]), out)
    stats = json.dumps({"count": 2, "successes": 2}).encode()

    def read_laion(path: Path) -> None:
        table = folder / "laion.parquet"
        if path.suffix == ".json":
            table.write_bytes(out.getvalue())
        else:
            laion400m._stats(table).write_bytes(stats)
        part = {"path": str(table), "number": 0, "only_images": False}
        list(laion400m.samples(part, failures=str(folder / "failures")))

    yield of_file("laion.parquet", read_laion, out.getvalue())
    yield of_file("laion_stats.json", read_laion, stats)

    fields = {"text": str, "meta": dict}
    line = json.dumps({"text": "a", "meta": {}}).encode() + b"\n"
    for suffix, pack in (("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)):
        yield of_file(
            f"lines.jsonl{suffix}", lambda path: list(text.json_lines(path, fields)), pack(2 * line)
        )

    table = "videoid,contentUrl,duration,page_dir,name\n1,https://x/1.mp4,PT00H00M30S,b,a\n"
    yield of_file("webvid.csv", lambda path: webvid._starts(path, 10, None), table.encode())

    tokens = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
    yield of_file("vocab.txt", bert.Vocabulary.of, tokens.encode())
