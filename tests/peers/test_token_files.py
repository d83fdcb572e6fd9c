"""Token files of Megatron-LM and nanoGPT are read as by their own readers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from streamplug import StreamingDataset, TokenBlocks, TokenDataset

torch = pytest.importorskip("torch")
pytest.importorskip("streamplug_tokens")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it misses its kernels for GPUs
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset")


def write(prefix, lengths, dtype, *, multimodal=False, per_document=1):
    rng = np.random.default_rng(len(lengths))
    bounds = np.iinfo(dtype)
    builder = indexed_dataset.IndexedDatasetBuilder(
        f"{prefix}.bin", dtype=dtype, multimodal=multimodal
    )
    for number, length in enumerate(lengths):
        tokens = rng.integers(bounds.min, min(bounds.max, 1 << 62), length, dtype=np.int64)
        builder.add_item(torch.from_numpy(tokens), *((number % 3,) if multimodal else ()))
        if number % per_document == 0:
            builder.end_document()
    builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return str(prefix)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("multimodal", [False, True])
def test_sequences_are_those_of_megatron(tmp_path, dtype, multimodal):
    lengths = [7, 0, 1, 300, 0, 64, 2]
    prefix = write(
        tmp_path / "text_document", lengths, dtype, multimodal=multimodal, per_document=2
    )
    theirs = indexed_dataset.IndexedDataset(prefix, multimodal=multimodal)
    for access in ("shard", "range"):
        ours = StreamingDataset(
            remote=prefix, local=str(tmp_path / access), format="megatron", access=access
        )
        assert len(ours) == len(theirs)
        for number in range(len(theirs)):
            tokens = theirs[number]
            if multimodal:
                tokens, mode = tokens
                assert ours[number]["mode"] == mode
            assert ours[number]["tokens"].dtype == tokens.dtype
            assert np.array_equal(ours[number]["tokens"], tokens)


def test_rows_are_the_tokens_of_megatron(tmp_path):
    prefix = write(tmp_path / "text_document", [100, 3, 0, 999, 41], np.int32)
    theirs = indexed_dataset.IndexedDataset(prefix)
    tokens = np.concatenate([theirs[number] for number in range(len(theirs))])
    blocks = TokenBlocks(column="tokens", length=32)
    ours = TokenDataset(tokens=blocks, local=prefix, format="megatron", batch_size=4)
    rows = np.concatenate([row["tokens"] for row in ours[:]])
    assert np.array_equal(rows, tokens[: len(tokens) // 32 * 32])


def test_merged_data_sets_of_megatron_are_read(tmp_path):
    parts = [write(tmp_path / f"part{number}", [5, number, 9], np.uint16) for number in range(3)]
    builder = indexed_dataset.IndexedDatasetBuilder(f"{tmp_path}/all.bin", dtype=np.uint16)
    for part in parts:
        builder.add_index(part)
    builder.finalize(f"{tmp_path}/all.idx")
    theirs = indexed_dataset.IndexedDataset(f"{tmp_path}/all")
    ours = StreamingDataset(local=f"{tmp_path}/all", format="megatron")
    for sample, tokens in zip(ours, (theirs[number] for number in range(len(theirs))), strict=True):
        assert np.array_equal(sample["tokens"], tokens)


def test_blocks_are_those_of_nanogpt(tmp_path):
    np.random.default_rng(0).integers(0, 50257, 5000).astype(np.uint16).tofile(
        tmp_path / "train.bin"
    )
    theirs = np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r")
    blocks = TokenBlocks(column="tokens", length=128, extras=["targets"])
    ours = TokenDataset(tokens=blocks, local=str(tmp_path / "train.bin"), format="nanogpt")
    assert len(ours) == (len(theirs) - 1) // 128
    for number, row in enumerate(ours[:]):
        at = 128 * number
        assert np.array_equal(row["tokens"], theirs[at : at + 128])
        assert np.array_equal(row["targets"], theirs[at + 1 : at + 129])
