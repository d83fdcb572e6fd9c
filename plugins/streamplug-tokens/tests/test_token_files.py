"""Token files of Megatron-LM, nanoGPT and llm.c: what is read of them, and what is refused."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from streamplug_tokens.dataset import TokenDataset
from streamplug_tokens.megatron_index import parse_megatron_index
from streamplug_tokens.options import TokenBlocks

from streamplug.dataset import StreamingDataset
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    InvalidIndexError,
    NotFound,
    StreamplugError,
)
from streamplug.interfaces import Format
from streamplug.plugin import make

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
HEAD = 34
LENGTHS = [5, 0, 3, 700, 1]
slow = settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def documents(lengths: Any = LENGTHS, dtype: str = "uint16") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 100, length).astype(dtype) for length in lengths]


def index_of(docs: list[np.ndarray], modes: bytes = b"", code: int | None = None) -> bytes:
    sizes = np.array([len(doc) for doc in docs], "<i4")
    starts = np.cumsum([0, *(doc.nbytes for doc in docs)])[:-1].astype("<i8")
    code = CODES[docs[0].dtype.name] if code is None else code
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(docs), len(docs) + 1)
    ends = np.arange(len(docs) + 1, dtype="<i8")
    return head + sizes.tobytes() + starts.tobytes() + ends.tobytes() + modes


def write_megatron(prefix: Path, docs: list[np.ndarray], modes: bytes = b"") -> str:
    Path(f"{prefix}.bin").write_bytes(b"".join(doc.tobytes() for doc in docs))
    Path(f"{prefix}.idx").write_bytes(index_of(docs, modes))
    return str(prefix)


def rows_of(dataset: TokenDataset) -> list[list[int]]:
    return [row.tolist() for batch in dataset.batches() for row in batch["tokens"]]


def cut(tokens: np.ndarray, length: int) -> list[list[int]]:
    return [tokens[at : at + length].tolist() for at in range(0, len(tokens) - length + 1, length)]


@pytest.mark.parametrize("dtype", CODES)
def test_a_sample_is_a_sequence(tmp_path, dtype):
    docs = documents(dtype=dtype)
    dataset = StreamingDataset(local=write_megatron(tmp_path / "text", docs), format="megatron")
    for doc, sample in zip(docs, dataset, strict=True):
        assert sample["tokens"].dtype == doc.dtype
        assert sample["tokens"].tolist() == doc.tolist()


@pytest.mark.parametrize("name", ["text", "text.bin", "", "*", "te*.bin"])
def test_locations_are_prefixes_files_directories_or_patterns(tmp_path, name):
    docs = documents()
    write_megatron(tmp_path / "text", docs)
    dataset = StreamingDataset(local=f"{tmp_path}/{name}", format="megatron")
    assert [len(sample["tokens"]) for sample in dataset] == LENGTHS


def test_several_prefixes_are_one_data_set(tmp_path):
    prefixes = [write_megatron(tmp_path / name, documents()) for name in ("b", "a")]
    dataset = StreamingDataset(remote=prefixes, format="megatron", local=str(tmp_path / "cache"))
    assert [len(sample["tokens"]) for sample in dataset] == 2 * LENGTHS


def test_sequences_of_multimodal_data_sets_have_modes(tmp_path):
    place = write_megatron(tmp_path / "text", documents(), bytes([0, 1, 0, 2, 1]))
    for access in ("shard", "range"):
        dataset = StreamingDataset(
            remote=place, local=str(tmp_path / access), format="megatron", access=access
        )
        assert [int(sample["mode"]) for sample in dataset] == [0, 1, 0, 2, 1]
        assert dataset[3]["tokens"].tolist() == documents()[3].tolist()


@slow
@given(data=st.data())
def test_rows_are_of_the_concatenation(tmp_path, data):
    docs = documents(data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=20)))
    length, separator = data.draw(st.integers(1, 30)), data.draw(st.none() | st.just(7))
    place = write_megatron(tmp_path / "text", docs)
    blocks = TokenBlocks(column="tokens", length=length, separator=separator)
    tokens = np.concatenate(
        [np.append(d, d.dtype.type([7] * (separator is not None))) for d in docs]
    )
    assume(len(tokens) >= length)
    dataset = TokenDataset(tokens=blocks, local=place, format="megatron", batch_size=1)
    assert rows_of(dataset) == cut(tokens, length)


@pytest.mark.parametrize("access", ["shard", "range"])
def test_remote_files_are_read_as_local_ones(tmp_path, access):
    docs = documents()
    place = write_megatron(tmp_path / "text", docs)
    blocks = TokenBlocks(column="tokens", length=64)
    dataset = TokenDataset(
        tokens=blocks,
        remote=place,
        local=str(tmp_path / "cache"),
        format="megatron",
        batch_size=1,
        access=access,
    )
    assert rows_of(dataset) == cut(np.concatenate(docs), 64)


def damaged(at: int, kind: str, value: int) -> bytes:
    data = bytearray(index_of(documents()))
    struct.pack_into(kind, data, at, value)
    return bytes(data)


LENGTH_AT, POINTER_AT, DOCUMENT_AT = HEAD, HEAD + 20, HEAD + 60


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"begins with b''"),
        (b"PK" + bytes(60), r"begins with b'PK"),
        (b"TNTIDX\0\0" + bytes(60), "TNTIDX"),
        (index_of(documents())[:20], "cut off after 20 bytes"),
        (damaged(9, "<Q", 2), "version 2, expected 1"),
        (damaged(17, "<B", 9), r"dtype code 9; known are 1 \(uint8\)"),
        (damaged(18, "<Q", 1 << 62), "sequences and 6 document indices take"),
        (index_of(documents())[:-1], "5 sequences and 6 document indices take 142"),
        (index_of(documents()) + b"1234", "has 146 bytes"),
        (damaged(LENGTH_AT + 8, "<i", -1), "sequence 2 -1 tokens"),
        (damaged(LENGTH_AT + 8, "<i", 4), "sequence 3 at byte 16.* take 18 bytes"),
        (
            damaged(LENGTH_AT + 16, "<i", 9),
            "sequence 4, of 9 tokens, at byte 1416.* has 1418 bytes",
        ),
        (damaged(LENGTH_AT + 16, "<i", 0), "take 1416 bytes, but the .bin has 1418"),
        (damaged(POINTER_AT + 16, "<q", 1 << 62), "sequence 2, of 3 tokens, at byte 4611686"),
        (damaged(POINTER_AT, "<q", -2), "sequence 0, of 5 tokens, at byte -2"),
        (damaged(POINTER_AT + 8, "<q", 12), "sequence 1 at byte 12.* take 10 bytes"),
        (damaged(DOCUMENT_AT + 40, "<q", 4), "document indices"),
        (damaged(DOCUMENT_AT + 8, "<q", 3), "document indices"),
    ],
)
def test_damaged_indexes_are_refused(tmp_path, data, message):
    place = write_megatron(tmp_path / "text", documents())
    Path(f"{place}.idx").write_bytes(data)
    with pytest.raises(CorruptShardError, match=rf"text\.bin.*{message}"):
        StreamingDataset(local=place, format="megatron")


@given(
    data=st.binary(max_size=200)
    | st.binary(max_size=120).map(lambda b: index_of(documents())[:26] + b)
)
@settings(deadline=None, max_examples=100)
def test_no_index_crashes_the_parser(data):
    with suppress(DataError):
        parse_megatron_index(data, 1418)


def test_missing_files_are_named(tmp_path):
    place = write_megatron(tmp_path / "text", documents())
    with pytest.raises(NotFound, match=r"none\.bin.*slash"):
        StreamingDataset(local=str(tmp_path / "none"), format="megatron")
    Path(f"{place}.idx").unlink()
    with pytest.raises(CorruptShardError, match=r"no text\.idx beside it.*format='nanogpt'"):
        StreamingDataset(local=place, format="megatron")
    (tmp_path / "text.bin").rename(tmp_path / "text.idx")
    with pytest.raises(NotFound, match=r"text\.bin"):
        StreamingDataset(local=place, format="megatron")


def test_floats_are_read_but_not_as_tokens(tmp_path):
    docs = [np.array([0.5, 2.0]), np.array([1.0])]
    (tmp_path / "text.bin").write_bytes(docs[0].tobytes() + docs[1].tobytes())
    (tmp_path / "text.idx").write_bytes(index_of(docs, code=6))
    place = str(tmp_path / "text")
    assert StreamingDataset(local=place, format="megatron")[0]["tokens"].tolist() == [0.5, 2.0]
    with pytest.raises(ConfigError, match="tokens are whole numbers, not float64"):
        TokenDataset(tokens=TokenBlocks(column="tokens", length=1), local=place, format="megatron")


# -- nanoGPT --------------------------------------------------------------------------------


def header(count: int, magic: int = 20240520, version: int = 1) -> bytes:
    return struct.pack("<iii", magic, version, count).ljust(1024, b"\0")


def nanogpt(place: Path, spec: str = "nanogpt", **options: Any) -> StreamingDataset:
    return StreamingDataset(local=str(place), format=spec, **options)


@pytest.mark.parametrize(
    ("head", "dtype", "spec"),
    [
        (b"", "uint16", "nanogpt"),
        (b"", "uint32", "nanogpt:uint32"),
        (header(1000), "uint16", "nanogpt"),
        (header(1000, 20240801, 7), "uint32", "nanogpt:uint32"),
    ],
)
@pytest.mark.parametrize("block", [None, 100, 130])
@pytest.mark.parametrize("access", ["shard", "range"])
def test_blocks_are_of_the_files_in_order(tmp_path, head, dtype, spec, block, access):
    tokens = np.random.default_rng(0).integers(0, 50_000, 1000).astype(dtype)
    (tmp_path / "train.bin").write_bytes(head + tokens.tobytes())
    if block:
        spec += f"{',' if ':' in spec else ':'}block={block}"
    place = {"remote": str(tmp_path / "train.bin"), "local": str(tmp_path / "cache")}
    dataset = StreamingDataset(**place, format=spec, access=access)
    samples = [sample["tokens"] for sample in dataset]
    assert {len(sample) for sample in samples[:-1]} <= {block}
    assert np.array_equal(np.concatenate(samples), tokens)
    assert samples[0].dtype == tokens.dtype
    blocks = TokenBlocks(column="tokens", length=64)
    rows = TokenDataset(tokens=blocks, **place, format=spec, access=access, batch_size=1)
    assert rows_of(rows) == cut(tokens, 64)


@pytest.mark.parametrize(
    ("content", "spec", "message"),
    [
        (b"", "nanogpt", "has no tokens"),
        (b"123", "nanogpt", "3 bytes are not a whole number of tokens of uint16"),
        (b"123456", "nanogpt:uint32", "6 bytes are not a whole number of tokens of uint32"),
        (header(3)[:1000], "nanogpt", "cut off after 1000"),
        (header(3, version=2) + b"123456", "nanogpt", "version 2, expected 1"),
        (header(3, 20240801, 1) + b"123456", "nanogpt", "version 1, expected 7"),
        (header(4) + b"123456", "nanogpt", "announces 4 tokens of uint16, but 6 bytes follow"),
        (header(3) + b"1234567", "nanogpt", "announces 3 tokens"),
        (header(0), "nanogpt", "has no tokens"),
        (header(3, 20240522) + b"123456", "nanogpt", "evaluation"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, spec, message):
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(CorruptShardError, match=rf"train\.bin.*{message}"):
        nanogpt(tmp_path / "train.bin", spec)


def test_what_contradicts_the_header_is_refused(tmp_path):
    (tmp_path / "train.bin").write_bytes(header(3) + b"123456")
    with pytest.raises(ConfigError, match="its tokens are uint16"):
        nanogpt(tmp_path / "train.bin", "nanogpt:uint32")
    (tmp_path / "more.bin").write_bytes(b"123456")
    with pytest.raises(
        InvalidIndexError, match=r"more\.bin and train\.bin.*some files have a header"
    ):
        nanogpt(tmp_path)
    blocks = TokenBlocks(column="tokens", length=1, dtype="uint32")
    with pytest.raises(ConfigError, match="has tokens of uint16, not dtype='uint32'"):
        TokenDataset(tokens=blocks, local=str(tmp_path / "more.bin"), format="nanogpt")


@pytest.mark.parametrize("argument", ["float32", "block=0", "block=x", "block", "uint16;block=3"])
def test_unknown_options_are_refused(argument):
    with pytest.raises(ConfigError, match="is none of uint8, uint16"):
        make("format", f"nanogpt:{argument}")


@pytest.mark.parametrize("name", ["megatron", "nanogpt"])
def test_entries_that_no_scan_wrote_are_refused(name):
    format_: Format = make("format", name)
    for columns in (
        None,
        {},
        {"tokens": "str"},
        {"text": "uint16"},
        {"tokens": "uint16", "x": "int8"},
    ):
        with pytest.raises(InvalidIndexError, match="columns must be"):
            format_.columns({"columns": columns}, make)


def test_files_that_changed_since_are_noticed(tmp_path):
    place = tmp_path / "train.bin"
    place.write_bytes(b"12345678")
    dataset = nanogpt(place)
    place.write_bytes(b"1234567")
    with pytest.raises(StreamplugError, match=r"train\.bin"):
        dataset[0]
