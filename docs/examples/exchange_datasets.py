"""Writes a data set of Hugging Face as one of streamplug, and reads one of streamplug as one of theirs.

What the columns are beyond their values, such as the names of classes, is kept in features.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, IterableDataset

from streamplug import StreamingDataset, write_from


def write(data: Dataset, out: Path, **options: Any) -> None:
    write_from(data, out=out, **options)
    (out / "features.json").write_text(json.dumps(data.features.to_dict()))


def samples(folder: str) -> Iterator[dict[str, Any]]:
    yield from StreamingDataset(local=folder, batch_size=1)  # in its own order


def read(folder: Path) -> IterableDataset:
    features = Features.from_dict(json.loads((folder / "features.json").read_text()))
    return IterableDataset.from_generator(
        samples, features=features, gen_kwargs={"folder": str(folder)}
    )


def main() -> None:
    reviews = Dataset.from_dict({"text": ["good", "bad"], "stars": [5, 1]})
    write(reviews, Path("reviews"))
    print(list(read(Path("reviews"))))


if __name__ == "__main__":
    main()
