"""What bench_landing.py measures: rows of work, libraries that do it, and the ways in which each may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import crop_sides
import read_peers
import read_sides
import remote_sides
from read_sides import Epochs


class Side(NamedTuple):
    """A library that does the work of a row.

    Attributes:
        library: Its name, and what it differs in from another side of that library.
        ways: By their names, functions that yield epochs as in read_sides.py. They take the folder of the
            data set and its number of samples; of a remote row, the port of the server alone.
        layout: The folder that it reads.
        needs: Packages without which there is no such side.
    """

    library: str
    ways: dict[str, Callable[..., Epochs]]
    layout: str = "mds"
    needs: tuple[str, ...] = ()


class Row(NamedTuple):
    """Some work, and who does it.

    Attributes:
        title: What a sample is, and what is made of it.
        unit: What is counted in a second.
        kind: The data set, of those of read_data.py.
        samples: How many the data set has: a multiple of two batches, so that batches of two workers are
            whole ones.
        batch: Samples per batch.
        sides: Who does the work.
        is_remote: Whether each epoch reads from a server, with an empty cache.
    """

    title: str
    unit: str
    kind: str
    samples: int
    batch: int
    sides: tuple[Side, ...]
    is_remote: bool = False


WORKERS, THREADS, PROCESS = "2 workers", "2 threads", "no workers"
RESTARTED = "2 workers, started for each epoch"
NEEDS = {
    "streamplug": ("streamplug", "torch"),
    "litdata": ("litdata",),
    "mosaicml-streaming": ("streaming",),
    "datasets": ("datasets",),
    "webdataset": ("webdataset",),
}


# -- random crops -------------------------------------------------------------------------


def crops() -> Row:
    ours = {
        THREADS: partial(crop_sides.ours, workers=0, num_threads=2),
        WORKERS: partial(crop_sides.ours, workers=2),
    }
    with_pillow = {
        THREADS: partial(crop_sides.with_pillow, workers=0, num_threads=2),
        WORKERS: partial(crop_sides.with_pillow, workers=2),
    }
    grain = {THREADS: crop_sides.grain_threads, WORKERS: crop_sides.grain_workers}
    shared = ("torch", "torchvision")
    sides = (
        Side("streamplug", ours, needs=(*NEEDS["streamplug"], "streamplug_image")),
        Side("streamplug, Pillow", with_pillow, needs=("streamplug", *shared)),
        Side("torchvision ImageFolder", {WORKERS: crop_sides.image_folder}, "folder", shared),
        Side("webdataset", {WORKERS: crop_sides.webdataset}, "webdataset", ("webdataset", *shared)),
        Side("litdata", {WORKERS: crop_sides.litdata}, "litdata", ("litdata", *shared)),
        Side("mosaicml-streaming", {WORKERS: crop_sides.mosaic}, "mds", ("streaming", *shared)),
        Side("datasets", {WORKERS: crop_sides.hf}, "arrow", ("datasets", *shared)),
        Side("SPDL", {THREADS: crop_sides.spdl_threads}, "folder", ("spdl.pipeline", *shared)),
        Side("Grain", grain, "arrayrecord", ("grain", "array_record", *shared)),
    )
    title = "JPEGs of 500 x 375 to crops of 224 x 224"
    return Row(title, "images/s", "photos", 12_288, crop_sides.BATCH, sides)


# -- rows of numbers and texts ------------------------------------------------------------


def local_sides(batch: int) -> Iterator[Side]:
    """Yield sides that read batches of any local data set."""
    ours = {
        PROCESS: partial(read_sides.ours_batches, batch=batch),
        THREADS: partial(read_sides.ours_batches, batch=batch, num_threads=2),
        WORKERS: partial(read_sides.ours_loader, batch=batch, workers=2),
    }
    yield Side("streamplug", ours, needs=NEEDS["streamplug"])
    by_litdata = partial(read_peers.litdata_loader, batch=batch)
    litdata = {
        PROCESS: partial(by_litdata, workers=0),
        WORKERS: partial(by_litdata, workers=2),
        RESTARTED: partial(by_litdata, workers=2, persistent=False),
    }
    yield Side("litdata", litdata, "litdata", NEEDS["litdata"])
    yield Side(
        "mosaicml-streaming",
        with_and_without_workers(partial(read_peers.mosaic_loader, batch=batch)),
        needs=NEEDS["mosaicml-streaming"],
    )
    datasets = {
        PROCESS: partial(read_peers.hf_batches, batch=batch),
        WORKERS: partial(read_peers.hf_loader, batch=batch, workers=2),
    }
    yield Side("datasets", datasets, "arrow", NEEDS["datasets"])
    yield Side(
        "webdataset",
        with_and_without_workers(partial(read_peers.webdataset_loader, batch=batch)),
        "webdataset",
        NEEDS["webdataset"],
    )


def with_and_without_workers(read: Callable[..., Epochs]) -> dict[str, Callable[..., Epochs]]:
    return {PROCESS: partial(read, workers=0), WORKERS: partial(read, workers=2)}


def tokens() -> Row:
    sides = tuple(local_sides(64))
    return Row("2,048 tokens of uint16", "samples/s", "tokens", 204_800, 64, sides)


def small() -> Row:
    # A tar file takes a kilobyte for each of these samples.
    sides = tuple(side for side in local_sides(256) if side.library != "webdataset")
    title = "An int, a float, a short str"
    return Row(title, "samples/s", "small", 1_024_000, 256, sides)


# -- from a server ------------------------------------------------------------------------


def cold_epochs(open_batches: Callable[[str], Iterable[Any]], batch: int) -> Epochs:
    """Yield epochs of batches that a function opens with an empty folder as the cache."""

    def batches(cache: str) -> Iterator[Any]:
        yield from open_batches(cache)

    while True:
        with TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            # Kept here: to drop an epoch in its midst is to wait for its workers, with some for long.
            items = batches(cache)
            yield items, batch


def ours_remote(port: int, *, client: str, batch: int, workers: int) -> Epochs:
    def open_batches(cache: str) -> Iterable[Any]:
        dataset = remote_sides.opened(
            client, port, "photos/mds", "shard", cache, batch, shuffle_block_size=remote_sides.BLOCK
        )
        if not workers:
            return dataset.batches()
        from streamplug import StreamingDataLoader

        return StreamingDataLoader(dataset, num_workers=workers)

    return cold_epochs(open_batches, batch)


def litdata_remote(port: int, *, batch: int, workers: int) -> Epochs:
    import litdata

    open_dataset = remote_sides.litdata_opener(port)

    def open_batches(cache: str) -> Iterable[Any]:
        dataset = open_dataset("photos/litdata", cache)
        return litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers)

    return cold_epochs(open_batches, batch)


def mosaic_remote(port: int, *, batch: int, workers: int) -> Epochs:
    open_dataset = remote_sides.mosaic_opener(port)

    def open_batches(cache: str) -> Iterable[Any]:
        block = remote_sides.BLOCK
        dataset = open_dataset("photos/mds", cache, batch_size=batch, shuffle_block_size=block)
        loader, _ = next(read_peers.torch_loader(dataset, workers, batch))
        return loader

    return cold_epochs(open_batches, batch)


def remote() -> Row:
    batch = 64
    ours = {
        f"{client}, {way}": partial(ours_remote, client=client, batch=batch, workers=workers)
        for client in ("obstore", "s3fs")
        for way, workers in ((PROCESS, 0), (WORKERS, 2))
    }
    sides = (
        Side(
            "streamplug",
            ours,
            needs=(*NEEDS["streamplug"], "streamplug_obstore", "streamplug_s3fs"),
        ),
        Side(
            "litdata",
            with_and_without_workers(partial(litdata_remote, batch=batch)),
            "litdata",
            (*NEEDS["litdata"], "obstore"),
        ),
        Side(
            "mosaicml-streaming",
            with_and_without_workers(partial(mosaic_remote, batch=batch)),
            needs=(*NEEDS["mosaicml-streaming"], "boto3"),
        ),
    )
    title = "JPEGs as bytes, S3, 20 ms away"
    return Row(title, "images/s", "photos", 12_288, batch, sides, is_remote=True)


ROWS = {"crops": crops(), "tokens": tokens(), "small": small(), "remote": remote()}
