"""Token ids in lists of Parquet and JSON, and lengths in a column of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_tokens.dataset import TokenDataset
from streamplug_tokens.number_lists import NumberLists, convert_numbers
from streamplug_tokens.options import TokenBlocks, TokenPacks

from streamplug import MDSWriter
from streamplug.errors import ConfigError, DataError, DecodeError
from streamplug.interfaces import Encoding

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("streamplug_parquet")
pytest.importorskip("streamplug_text")

DOCUMENTS = [list(range(n)) for n in (5, 0, 30, 7)]
TOKENS = np.concatenate(DOCUMENTS).astype(int).tolist()


@pytest.fixture(autouse=True)
def temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def parquet(tmp_path: Path, ids: Any = None, **columns: Any) -> dict[str, str]:
    ids = DOCUMENTS if ids is None else ids
    names = [f"document {number}" for number in range(len(ids))]
    table = pa.table({"id": names, "ids": ids, **columns})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    return {"local": str(tmp_path / "x.parquet"), "format": "parquet"}


def jsonl(tmp_path: Path, lines: Sequence[Any]) -> dict[str, str]:
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {"local": str(tmp_path / "x.jsonl"), "format": "jsonl"}


def blocks(place: dict[str, str], access: str = "shard", **options: Any) -> list[np.ndarray]:
    options = {"column": "ids", "length": 6, "remainder": "pad", **options}
    dataset = TokenDataset(tokens=TokenBlocks(**options), access=access, batch_size=1, **place)
    return [row["ids"] for row in dataset[:]]


def flat(rows: list[np.ndarray]) -> list[int]:
    return np.concatenate(rows).tolist()


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16())]
)
@pytest.mark.parametrize("dtype", [None, "uint16", "int64"])
def test_lists_of_parquet_are_tokens(tmp_path, access, type_, dtype):
    rows = blocks(parquet(tmp_path, pa.array(DOCUMENTS, type_)), access, dtype=dtype)
    assert flat(rows) == TOKENS
    assert rows[0].dtype == (dtype or pa.array([0], type_.value_type).to_numpy().dtype)


@pytest.mark.parametrize("nullable", [False, True])
def test_lists_of_one_length_are_not_counted(tmp_path, nullable):
    type_ = pa.list_(pa.int32(), 4)
    schema = pa.schema([pa.field("ids", type_, nullable=nullable)])
    table = pa.table({"ids": pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], type_)}, schema)
    pq.write_table(table, tmp_path / "x.parquet")
    rows = blocks({"local": str(tmp_path / "x.parquet"), "format": "parquet"}, length=4)
    assert flat(rows) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("access", ["shard", "range"])
def test_lists_of_json_are_tokens(tmp_path, access):
    place = jsonl(tmp_path, [{"id": "x", "ids": ids} for ids in DOCUMENTS])
    rows = blocks(place, access, dtype="uint16")
    assert flat(rows) == TOKENS
    assert rows[0].dtype == np.uint16
    with pytest.raises(ConfigError, match="'json': does not say of what dtype its tokens are"):
        blocks(place)


def test_json_of_shards_is_read_as_lists(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"ids": "json"}) as out:
        for ids in DOCUMENTS:
            out.write({"ids": ids})
    assert flat(blocks({"local": str(tmp_path / "set")}, dtype="uint16")) == TOKENS


def test_further_columns_may_be_lists(tmp_path):
    masks = [[n % 2 for n in ids] for ids in DOCUMENTS]
    place = parquet(tmp_path, mask=pa.array(masks, pa.list_(pa.int8())))
    for dtype in (None, "bool", "float32"):
        options = TokenBlocks(
            column="ids",
            length=6,
            remainder="pad",
            columns=["mask"],
            column_dtypes={} if dtype is None else {"mask": dtype},
        )
        rows = TokenDataset(tokens=options, batch_size=1, **place)[:]
        assert [row["mask"].dtype for row in rows] == [np.dtype(dtype or "int8")] * 7
        assert flat([row["mask"] for row in rows]) == list(chain(*masks))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[[1]], [[2]]], "lists of whole numbers"),
        ([[1.5], [2.0]], "tokens are whole numbers, not float64"),
        (["a", "b"], "lists of whole numbers"),
        ([1, 2], "lists of whole numbers"),
        ([[1], None], "sample 1, column 'ids': no value where"),
        ([[1], [None]], "numbers in lists are missing"),
        ([[1], [70_000]], r"sample 1.*70000 is no uint16, which is 0 to 65535; pass another dtype"),
        ([[1], [-1]], "-1 is no uint16"),
    ],
)
def test_other_values_of_parquet_are_refused(tmp_path, ids, message):
    dtype = "uint16" if "no uint16" in message else None
    with pytest.raises((ConfigError, DataError), match=message):
        blocks(parquet(tmp_path, pa.array(ids)), dtype=dtype, length=1)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (None, "expected a list of numbers, got None"),
        ("text", "expected a list of numbers, got 'text'"),
        ([[1], [2, 3]], "expected a list of numbers that fit 64 bits"),
        ([1, None], "expected a list of numbers that fit 64 bits"),
        ([1, "2"], "expected a list of numbers that fit 64 bits"),
        ([1 << 70], "expected a list of numbers that fit 64 bits"),
        ([1.5], "1.5 is no uint16"),
        ([65_536], "65536 is no uint16"),
    ],
)
def test_other_values_of_json_are_refused(tmp_path, ids, message):
    place = jsonl(tmp_path, [{"ids": [1]}, {"ids": ids}])
    with pytest.raises(DataError, match=rf"x\.jsonl.*sample 1.*column 'ids'.*{message}"):
        blocks(place, dtype="uint16", length=1)


@pytest.mark.parametrize("dtype", ["text", ">u2", "float32"])
def test_invalid_dtypes_are_refused(tmp_path, dtype):
    with pytest.raises(ConfigError, match="dtype"):
        blocks(parquet(tmp_path), dtype=dtype)


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5),
    st.sampled_from(["uint8", "int16", "uint32", "int64", "uint64", "bool", "float64"]),
)
@settings(deadline=None, max_examples=100)
def test_numbers_keep_their_value_or_are_refused(values, dtype):
    stored, wanted = np.array(values, np.int64), np.dtype(dtype)
    try:
        converted = convert_numbers(stored, wanted)
    except DecodeError:
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(wanted).min, np.iinfo(wanted).max)
        assert any(not low <= value <= high for value in values)
        return
    assert converted.dtype == wanted
    if wanted.kind != "f":
        assert [int(number) for number in converted] == values


def test_json_is_parsed_to_the_same_numbers():
    encoding = NumberLists(None, np.dtype("<u4"))
    assert encoding.decode(memoryview(b" [1, 2,4294967295] ")).tolist() == [1, 2, (1 << 32) - 1]
    assert encoding.decode(memoryview(b"[]")).dtype == np.uint32
    with pytest.raises(DecodeError, match="not JSON"):
        encoding.decode(memoryview(b"[1, 2"))


# -- a column of lengths --------------------------------------------------------------------


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.parametrize("view", [TokenBlocks, TokenPacks])
def test_lengths_of_a_column_are_not_counted(tmp_path, access, view, monkeypatch):
    monkeypatch.setattr("streamplug_tokens.lengths.DocumentCounter", None)
    place = parquet(tmp_path, length=[len(ids) for ids in DOCUMENTS])
    tokens = view(column="ids", length=30, lengths="length")
    dataset = TokenDataset(tokens=tokens, access=access, batch_size=1, **place)
    assert sum(len(row["ids"]) for row in dataset[:]) == (30 if view is TokenBlocks else 60)
    selected = TokenDataset(tokens=tokens, select=[2], batch_size=1, **place)
    assert [row["ids"].tolist() for row in selected[:]] == [DOCUMENTS[2]]


def test_lengths_of_shards_are_read_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug_tokens.lengths.DocumentCounter", None)
    columns = {"id": "str", "ids": "ndarray:uint16", "n": "int32"}
    with MDSWriter(out=tmp_path / "set", columns=columns, compression="gz") as out:
        for ids in DOCUMENTS:
            out.write({"id": "x", "ids": np.array(ids, np.uint16), "n": len(ids)})
    assert flat(blocks({"local": str(tmp_path / "set")}, lengths="n")) == TOKENS


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([5, 0, 31, 7], "30 tokens, where 31 were counted"),
        ([5, 0, -30, 7], "row 2: column 'n' of lengths= is -30"),
        ([5, None, 30, 7], "other values than whole numbers, such as None"),
        (["5", "0", "30", "7"], "other values than whole numbers, such as '5'"),
        ([5.0, 0.0, 30.0, 7.0], "other values than whole numbers, such as 5.0"),
    ],
)
def test_wrong_lengths_are_refused(tmp_path, lengths, message):
    with pytest.raises((ConfigError, DataError), match=message):
        blocks(parquet(tmp_path, n=lengths), lengths="n")


def test_columns_of_lengths_that_are_missing_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"lengths='n': .* has only the columns 'id', 'ids'"):
        blocks(parquet(tmp_path), lengths="n")
    for lengths in ("ids", 5):
        with pytest.raises(ConfigError, match="the name of a column of whole numbers"):
            TokenBlocks(column="ids", length=1, lengths=lengths)  # type: ignore[arg-type]


def test_states_do_not_depend_on_how_tokens_were_counted(tmp_path):
    place = parquet(tmp_path, n=[len(ids) for ids in DOCUMENTS])
    datasets = [
        TokenDataset(
            tokens=TokenBlocks(column="ids", length=6, lengths=name), batch_size=1, **place
        )
        for name in (None, "n")
    ]
    iterator = datasets[0].batches()
    next(iterator)
    state = datasets[0].state_dict()
    datasets[1].load_state_dict(state)
    ours, theirs = (next(batches)["ids"].tolist() for batches in (iterator, datasets[1].batches()))
    assert ours == theirs


class Plus(Encoding):
    """Reads lists of numbers of another encoding, and adds to them."""

    def __init__(self, stored: Encoding) -> None:
        self.stored = stored

    def encode(self, value: Any) -> bytes:
        return self.stored.encode(value)

    def decode(self, data: memoryview) -> list[int]:
        return [number + 100 for number in self.stored.decode(data)]


@pytest.mark.parametrize("decoded", ["ids", "labels"])
@pytest.mark.parametrize("make", [jsonl, parquet])
def test_lists_that_a_decoder_changes_are_refused(tmp_path, make, decoded):
    lines = [{"ids": [1, 2], "labels": [3, 4]}]
    place = make(tmp_path, lines) if make is jsonl else parquet(tmp_path, [[1, 2]], labels=[[3, 4]])
    tokens = TokenBlocks(
        column="ids", length=2, dtype="int64", columns=["labels"], column_dtypes={"labels": "int64"}
    )
    with pytest.raises(ConfigError, match=f"'{decoded}'.*not as Plus decodes them.*decoders="):
        TokenDataset(tokens=tokens, decoders={decoded: Plus}, **place)


LARGE = [
    ([2**63 + 1, 1], "uint64"),
    ([2**64 - 1, 0], "uint64"),
    ([2**53 + 1, 1.0], "int64"),
    ([-(2**63), 2.0], "int64"),
    ([2**53 + 1, 2.0], "float64"),
]


@pytest.mark.parametrize(("numbers", "dtype"), LARGE)
def test_large_integers_of_json_are_exact(numbers, dtype):
    encoding = NumberLists(None, np.dtype(dtype))
    found = encoding.decode(memoryview(json.dumps(numbers).encode()))
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), np.array(numbers, dtype).tolist())


@pytest.mark.parametrize(
    "text", ["[1e300, 2]", "[NaN, 9007199254740993]", "[-1, 9223372036854775808]", "[1e16, 0.5]"]
)
def test_numbers_that_are_no_integers_are_refused(text):
    with pytest.raises(DecodeError, match="is no int64"):
        NumberLists(None, np.dtype("int64")).decode(memoryview(text.encode()))


def test_numbers_beyond_a_dtype_of_floats_are_refused():
    for dtype, number in (("float16", 70000), ("float32", 1e300), ("float32", -1e39)):
        with pytest.raises(DecodeError, match=f"is beyond {dtype}"):
            convert_numbers(np.array([0, number]), np.dtype(dtype))
    infinite = convert_numbers(np.array([np.inf, -np.inf, np.nan, 0.5]), np.dtype("float16"))
    assert infinite.tolist()[:2] == [np.inf, -np.inf]
    assert np.isnan(infinite[2])
