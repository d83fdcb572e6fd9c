"""Data sets of Hugging Face: written by streamplug, and read from it, with what their columns are."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")

from datasets import ClassLabel, Dataset, Features, Image, Sequence, Value  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FEATURES = Features(
    {
        "text": Value("string"),
        "label": ClassLabel(names=["no", "yes"]),
        "score": Value("float32"),
        "tokens": Sequence(Value("int64")),
        "vector": Sequence(Value("float32"), length=3),
    }
)


@pytest.fixture
def example():
    sys.path.insert(0, str(EXAMPLES))
    yield runpy.run_path(str(EXAMPLES / "exchange_datasets.py"))
    sys.path.remove(str(EXAMPLES))


@pytest.fixture
def reviews():
    rows = [
        {
            "text": f"line {n} ä",
            "label": n % 2,
            "score": n / 3,
            "tokens": list(range(n % 7)),
            "vector": [n, n / 2, n / 4],
        }
        for n in range(100)
    ]
    return Dataset.from_list(rows, features=FEATURES)


@pytest.mark.parametrize("shards", ["mds", "parquet"])
def test_a_data_set_comes_back_with_its_features(example, reviews, tmp_path, shards):
    example["write"](reviews, tmp_path / "set", format=shards)
    back = example["read"](tmp_path / "set")
    assert back.features == reviews.features
    assert list(back) == list(reviews)


def test_shards_of_parquet_are_a_data_set_by_themselves(example, reviews, tmp_path):
    example["write"](reviews, tmp_path / "set", format="parquet")
    files = sorted(map(str, (tmp_path / "set").glob("*.parquet")))
    back = Dataset.from_parquet(files, features=FEATURES, cache_dir=str(tmp_path / "cache"))
    assert list(back) == list(reviews)


def test_images_come_back(example, tmp_path):
    import numpy as np

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    data = Dataset.from_dict({"image": [pixels]}, features=Features({"image": Image()}))
    example["write"](data, tmp_path / "set", columns={"image": "png"})
    (sample,) = example["read"](tmp_path / "set")
    assert (np.asarray(sample["image"]) == pixels).all()
