"""Data sets that Hugging Face Datasets saves, and its caches, are read as it reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamplug import StreamingDataset, TokenBlocks, TokenDataset

pytest.importorskip("streamplug_parquet")
datasets = pytest.importorskip("datasets")

COLUMNS = {
    "id": [str(number) for number in range(50)],
    "input_ids": [list(range(number)) for number in range(50)],
    "label": [number % 2 for number in range(50)],
}


def made(folder: Path):
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "input_ids": datasets.Sequence(datasets.Value("int32")),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    return datasets.Dataset.from_dict(COLUMNS, features=features)


def test_saved_data_sets_are_read(tmp_path):
    theirs = made(tmp_path)
    datasets.DatasetDict({"train": theirs, "test": theirs.select(range(3))}).save_to_disk(
        str(tmp_path / "saved"), num_shards={"train": 3, "test": 1}
    )
    loaded = datasets.load_from_disk(str(tmp_path / "saved"))
    for split in ("train", "test"):
        ours = StreamingDataset(local=str(tmp_path / "saved"), split=split, format="arrow")
        assert list(ours) == [dict(row) for row in loaded[split]]
    blocks = TokenBlocks(column="input_ids", length=32, dtype="uint16")
    place = str(tmp_path / "saved" / "train")
    rows = TokenDataset(tokens=blocks, local=place, format="arrow", batch_size=1)[:]
    tokens = np.concatenate([np.array(ids, np.uint16) for ids in COLUMNS["input_ids"]])
    assert np.concatenate([row["input_ids"] for row in rows]).tolist() == (
        tokens[: len(tokens) // 32 * 32].tolist()
    )


def test_caches_are_read(tmp_path):
    cached = str(tmp_path / "mapped.arrow")
    theirs = made(tmp_path).map(
        lambda row: {"length": len(row["input_ids"])}, cache_file_name=cached, writer_batch_size=7
    )
    ours = StreamingDataset(local=cached, format="arrow")
    assert list(ours) == [dict(row) for row in theirs]
