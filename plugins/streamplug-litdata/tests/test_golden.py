"""Sets that releases of litdata wrote are read, now and later."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing.equality import same

from streamplug import StreamingDataset
from streamplug.errors import ConfigError

GOLDEN = Path(__file__).with_name("golden")
MADE = runpy.run_path(str(GOLDEN / "make.py"))
COUNT = MADE["COUNT"]

SETS = sorted(path.parent for path in GOLDEN.glob("*/*/index.json"))
LEAVES = [path for path in SETS if path.name in ("items", "files", "frames", "packed")]
ROWS = [path for path in SETS if path.name in ("rows", "packed-rows")]
TOKENS = [path for path in SETS if path.name == "tokens"]


def name_of(path):
    return f"{path.parent.name}-{path.name}"


def read(path, spec="litdata", **options):
    """Return all samples, read in order, by number and some at once."""
    dataset = StreamingDataset(remote=str(path), format=spec, **options)
    found = list(dataset)
    assert all(same(dataset[number], sample) for number, sample in enumerate(found))
    batches = StreamingDataset(remote=str(path), format=spec, batch_size=len(found), **options)
    (batch,) = batches.batches()
    for name, values in batch.items():
        assert all(
            same(list(values)[n], s[name]) or values[n] == s[name] for n, s in enumerate(found)
        )
    return found


def test_all_layouts_are_there():
    assert len(LEAVES) == 6
    assert len(ROWS) == len(TOKENS) == 2


@pytest.mark.parametrize("path", LEAVES, ids=name_of)
def test_items_are_read(path, tmp_path):
    if path.name != "items":
        pytest.importorskip("streamplug_zstandard")
    # A cache, as what is compressed is unpacked in place where there is none.
    found = read(path, local=tmp_path)
    expected = [MADE["arrays"](number, lambda array: array) for number in range(COUNT)]
    assert all(same(mine, other) for mine, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("path", ROWS, ids=name_of)
def test_rows_of_arrow_are_read(path):
    pytest.importorskip("pyarrow")
    expected = [MADE["plain"](number) for number in range(COUNT)]
    assert same(read(path), expected)


@pytest.mark.parametrize("path", ROWS, ids=name_of)
def test_batches_of_rows_without_none_are_arrays_whatever_is_read_with_them(path):
    pytest.importorskip("pyarrow")
    dataset = StreamingDataset(remote=str(path), format="litdata", columns=["maybe"], batch_size=1)
    for batch, sample in zip(dataset.batches(), dataset[:], strict=True):
        assert type(batch["maybe"]) is (list if sample["maybe"] is None else np.ndarray)


@pytest.mark.parametrize("path", ROWS, ids=name_of)
def test_rows_of_arrow_are_read_for_the_lengths_of_a_batch_budget(path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("streamplug_budget")
    options = {"remote": str(path), "format": "litdata", "batching_method": "budget"}
    limit = max(len(MADE["plain"](number)["raw"]) for number in range(COUNT))
    dataset = StreamingDataset(**options, batch_budget={"limit": limit, "column": "raw"})
    found = [number for batch in dataset.batches() for number in batch["id"]]
    assert set(found) == {MADE["plain"](number)["id"] for number in range(COUNT)}
    by_bytes = {"limit": limit, "column": "raw", "measure": "bytes"}
    with pytest.raises(ConfigError, match="does not store the sizes of column 'raw'"):
        StreamingDataset(**options, batch_budget=by_bytes)


@pytest.mark.parametrize("path", TOKENS, ids=name_of)
@pytest.mark.parametrize("access", ["shard", "range"])
def test_tokens_are_read_as_documents_and_in_blocks(path, access):
    documents = [MADE["tokens"](number) for number in range(COUNT)]
    found = read(path, access=access)
    assert all(np.array_equal(f["tokens"], d) for f, d in zip(found, documents, strict=True))
    blocks = read(path, "litdata:block=5", access=access)
    chunks = [documents[:4], documents[4:6], documents[6:]]
    expected = [
        block
        for chunk in chunks
        for tokens in [np.concatenate(chunk)]
        for block in tokens[: len(tokens) // 5 * 5].reshape(-1, 5)
    ]
    assert np.array_equal([each["tokens"] for each in blocks], expected)


@pytest.mark.parametrize("path", [p for p in SETS if p.name in ("items", "packed")], ids=name_of)
def test_items_are_read_by_ranges(path):
    if path.name == "packed":
        pytest.importorskip("streamplug_zstandard")
    assert same(read(path, access="range"), read(path))


@pytest.mark.parametrize("name", ["rows", "frames", "files"])
def test_what_lies_together_is_not_read_by_ranges(name):
    with pytest.raises(ConfigError, match="range"):
        next(
            iter(
                StreamingDataset(remote=GOLDEN / "0.2.76" / name, format="litdata", access="range")
            )
        )
