"""Extraction of the videos of WebVid from samples into files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import click

from streamplug.dataset import StreamingDataset
from streamplug.errors import DataError
from streamplug.plugin import open_storage
from streamplug_datasets.convert.run import Split
from streamplug_datasets.convert.webvid import OUTSIDE
from streamplug_datasets.options import converter


@converter(size_limit="32mb", compression="zstd:16", source=str, whole=False)
@click.option("--videos", required=True, help="Path or URL for the videos.")
@click.option(
    "--part", default=1000, type=click.IntRange(1), show_default=True, help="Samples of a part."
)
def command(root: str, *, videos: str, part: int) -> list[Split]:
    """Take the videos out of a converted WebVid, which may be one of mosaicml-streaming.

    --in is a path or URL of samples that have videos. They become files in --videos, and samples
    have their paths.
    """
    _opened.cache_clear()  # it may have changed since another call in this process
    count = _opened(root).size
    if not count:
        raise DataError(f"{root}: a data set without samples")
    parts = [
        {
            "set": root,
            "videos": videos,
            "number": number,
            "start": start,
            "stop": min(start + part, count),
        }
        for number, start in enumerate(range(0, count, part))
    ]
    return [Split("", OUTSIDE, samples, parts)]


@lru_cache(1)
def _opened(remote: str) -> StreamingDataset:
    return StreamingDataset(remote=remote)


def samples(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part."""
    storage, dataset = open_storage(part["videos"]), _opened(part["set"])
    for number, at in enumerate(range(part["start"], part["stop"])):
        stored = dataset[at]
        if "content" not in stored:
            raise DataError(f"{part['set']}: sample {at} has no video")
        sample = {name: stored.get(name, "") for name in OUTSIDE}
        sample["content_path"] = f"{part['number']:05}/{number:05}.mp4"
        storage.write(sample["content_path"], stored["content"])
        yield sample
