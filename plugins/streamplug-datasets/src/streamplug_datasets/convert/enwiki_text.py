"""English Wikipedia as text, a sample to a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from streamplug_datasets.convert.enwiki import text_files
from streamplug_datasets.convert.run import Split
from streamplug_datasets.convert.text import text_lines
from streamplug_datasets.options import converter

COLUMNS = {"text": "str"}


@converter(splits=["train", "val"], compression="zstd:7", size_limit="32mb")
def command(root: Path, splits: Sequence[str], *, allow_partial: bool) -> list[Split]:
    """Convert English Wikipedia as text: a sample for each line that is not empty.

    --in has part-00000-of-00500 … and eval.txt, as for enwiki.
    """
    return [
        Split(
            split,
            COLUMNS,
            samples,
            [str(p) for p in text_files(root, split, allow_partial=allow_partial)],
        )
        for split in splits
    ]


def samples(part: str) -> Iterator[dict[str, str]]:
    """Yield the samples of a file."""
    return ({"text": text} for text in text_lines(Path(part)) if text)
