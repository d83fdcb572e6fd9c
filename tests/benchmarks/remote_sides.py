"""What bench_remote.py measures: each function does one thing once and returns how long that took."""

from __future__ import annotations

import os
import runpy
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

BATCH, FIRST, SHARDS_AT_ONCE, RANGES_AT_ONCE = 32, 8, 8, 16
NETWORK = "shards by a network"
BLOCK = 512  # samples that are shuffled together: some shards, so that others arrive meanwhile
KEYS = {"key": "test", "secret": "test"}


def stopwatch() -> Callable[[], float]:
    began = time.perf_counter()
    return lambda: time.perf_counter() - began


def where(client: str, port: int) -> tuple[str, dict[str, Any]]:
    """Return the URL of all data sets for one client of ours, and its options."""
    endpoint = f"http://127.0.0.1:{port}"
    if client == "http":
        return f"{endpoint}/bench", {}
    url = {"s3fs": "s3://bench", "obstore": "obstore:s3://bench"}[client]
    return url, {"endpoint_url": endpoint, "region": "us-east-1", **KEYS}


def shard_names(root: Path, name: str) -> list[str]:
    return sorted(f"{name}/{path.name}" for path in (root / "bench" / name).glob("*.mds"))


# -- clients alone --------------------------------------------------------------------------


class Bare:
    """Gets whole files, or parts of them, and does nothing else."""

    def __init__(self, client: str, port: int) -> None:
        url, options = where("http" if client == "boto3" else client, port)
        endpoint = f"http://127.0.0.1:{port}"
        if client == "boto3":
            import boto3
            from boto3.s3.transfer import TransferConfig
            from botocore.config import Config

            config = Config(s3={"addressing_style": "path"}, max_pool_connections=32)
            s3 = boto3.client("s3", endpoint_url=endpoint, config=config)
            transfer = TransferConfig(use_threads=False)
            self.file = lambda key, path: s3.download_file("bench", key, str(path), Config=transfer)
            self.part = lambda key, start, stop: s3.get_object(
                Bucket="bench", Key=key, Range=f"bytes={start}-{stop - 1}"
            )["Body"].read()
        elif client == "obstore":
            import obstore
            from obstore.store import S3Store

            store = S3Store(
                "bench",
                endpoint=endpoint,
                access_key_id=KEYS["key"],
                secret_access_key=KEYS["secret"],
                region="us-east-1",
                virtual_hosted_style_request=False,
                client_options={"allow_http": True},
            )

            def file(key: str, path: Path) -> None:
                with path.open("wb") as target:
                    for chunk in obstore.get(store, key).stream():
                        target.write(chunk)

            self.file = file
            # As bytes, which the others and samples have, too.
            self.part = lambda key, start, stop: obstore.get_range(
                store, key, start=start, end=stop
            ).to_bytes()
        else:
            from streamplug.plugin import open_storage

            storage = open_storage(url, options)
            filesystem = storage.filesystem()
            self.file = lambda key, path: filesystem.get_file(storage.path(key), str(path))
            self.part = storage.read_range


def bare_shards(client: str, port: int, root: Path) -> float:
    out, names = Path(tempfile.mkdtemp()), shard_names(root, "variable")
    seconds = stopwatch()
    bare = Bare(client, port)
    with ThreadPoolExecutor(SHARDS_AT_ONCE) as threads:
        list(threads.map(lambda name: bare.file(name, out / Path(name).name), names))
    found = seconds()
    shutil.rmtree(out)
    return found


def bare_ranges(client: str, port: int, root: Path) -> float:
    places = np.load(root / "places.npy").tolist()
    names = shard_names(root, "variable")
    seconds = stopwatch()
    bare = Bare(client, port)
    with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:
        list(threads.map(lambda at: bare.part(names[at[0]], at[1], at[2]), places))
    return seconds()


def bare_first(client: str, port: int, root: Path, ranges: int) -> float:
    """The least that a first batch takes: the index, then what it says; all of that at once."""
    size = (root / "bench" / "fixed" / "index.json").stat().st_size
    names = shard_names(root, "fixed")[:ranges]
    with ThreadPoolExecutor(ranges) as threads:
        list(threads.map(time.sleep, [0.01] * ranges))  # so that they have been started
        seconds = stopwatch()
        bare = Bare(client, port)
        bare.part("fixed/index.json", 0, size)
        list(threads.map(lambda name: bare.part(name, 4000, 104_000), names))
        return seconds()


# -- ours -----------------------------------------------------------------------------------


def opened(
    client: str,
    port: int,
    name: str,
    access: str,
    local: str | None,
    batch: int,
    *,
    shuffle: bool = True,
    **more: Any,
) -> Any:
    from streamplug import StreamingDataset

    url, options = where(client, port)
    return StreamingDataset(
        remote=f"{url}/{name}",
        local=local,
        access=access,
        batch_size=batch,
        shuffle=shuffle,
        storage_options=options,
        **more,
    )


def our_shards(client: str, port: int, _root: Path) -> float:
    import streamplug.adapters.torch  # noqa: F401 - so that this is not measured

    out = tempfile.mkdtemp()
    seconds = stopwatch()
    for _ in opened(
        client, port, "variable", "shard", out, BATCH, shuffle_block_size=BLOCK
    ).batches():
        pass
    found = seconds()
    shutil.rmtree(out)
    return found


def our_files(client: str, port: int, _root: Path) -> float:
    """Have all files in the cache, checked and mapped, as `bare_shards` has them on the disk."""
    import streamplug.adapters.torch  # noqa: F401

    out = tempfile.mkdtemp()
    seconds = stopwatch()
    reader = opened(client, port, "variable", "shard", out, BATCH)._reader
    with ThreadPoolExecutor(SHARDS_AT_ONCE) as threads:
        list(threads.map(reader.ensure, range(len(reader.starts) - 1)))
    found = seconds()
    shutil.rmtree(out)
    return found


def our_epoch_of_ranges(client: str, port: int, _root: Path) -> float:
    import streamplug.adapters.torch  # noqa: F401

    seconds = stopwatch()
    for _ in opened(client, port, "variable", "range", None, BATCH).batches():
        pass
    return seconds()


def our_ranges(client: str, port: int, root: Path) -> float:
    """The samples that `bare_ranges` gets, by their numbers."""
    import streamplug.adapters.torch  # noqa: F401

    ids = np.load(root / "ids.npy")
    seconds = stopwatch()
    opened(client, port, "variable", "range", None, BATCH)[ids]
    return seconds()


def our_first(
    client: str, port: int, _root: Path, name: str, access: str, *, shuffle: bool = True
) -> float:
    import streamplug.adapters.torch  # noqa: F401

    out = tempfile.mkdtemp()
    local = out if access == "shard" else None
    seconds = stopwatch()
    batches = opened(client, port, name, access, local, FIRST, shuffle=shuffle).batches()
    next(batches)
    found = seconds()
    batches.close()
    shutil.rmtree(out)
    return found


# -- peers ----------------------------------------------------------------------------------

Opener = Callable[..., Any]
"""Opens a data set of a name, with an empty folder as its cache."""


def mosaic_opener(port: int) -> Opener:
    os.environ["S3_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    runpy.run_path(str(Path(__file__).parents[1] / "peers" / "stubs.py"))["install"]()
    warnings.simplefilter("ignore")
    from streaming import StreamingDataset

    def open_dataset(name: str, local: str, **options: Any) -> Any:
        return StreamingDataset(remote=f"s3://bench/{name}", local=local, shuffle=True, **options)

    return open_dataset


def litdata_opener(port: int) -> Opener:
    from litdata import StreamingDataset
    from litdata.streaming import downloader

    # It has no setting that lets its client do without TLS, which the server here does not speak.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    storage_options = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": KEYS["key"],
        "aws_secret_access_key": KEYS["secret"],
        "region_name": "us-east-1",
    }

    def open_dataset(name: str, local: str) -> Any:
        return StreamingDataset(
            f"s3://bench/{name}", cache_dir=local, storage_options=storage_options, shuffle=True
        )

    return open_dataset


def mosaic(port: int, _root: Path, name: str, samples: int | None) -> float:
    open_dataset = mosaic_opener(port)
    batch = FIRST if samples else BATCH
    return read_once(partial(open_dataset, name, batch_size=batch), samples)


def litdata(port: int, _root: Path, samples: int | None) -> float:
    return read_once(partial(litdata_opener(port), "litdata"), samples)


def read_once(open_dataset: Opener, samples: int | None) -> float:
    out = tempfile.mkdtemp()
    seconds = stopwatch()
    dataset = open_dataset(local=out)
    for _ in islice(iter(dataset), samples):
        pass
    found = seconds()
    del dataset
    shutil.rmtree(out, ignore_errors=True)
    return found


Side = Callable[[int, Path], float]
OURS = ("http", "s3fs", "obstore")


def sides() -> dict[str, dict[str, Side]]:
    """Return what is compared, by what is done and who does it; what belongs together is side by side."""
    found: dict[str, dict[str, Side]] = {"shards": {}, "ranges": {}, "epoch by ranges": {}}
    shards, ranges, epoch = found.values()
    found[NETWORK] = shards
    first: dict[str, Side] = {}
    found["first batch"] = first
    for client in OURS:
        bare, ours = f"{client}, bare", f"streamplug, {client}"
        shards |= {bare: partial(bare_shards, client), f"{ours}, files": partial(our_files, client)}
        shards[ours] = partial(our_shards, client)
        ranges |= {bare: partial(bare_ranges, client), ours: partial(our_ranges, client)}
        epoch[ours] = partial(our_epoch_of_ranges, client)
        first[f"{client}, index and a range"] = partial(bare_first, client, ranges=1)
        first[f"{client}, index and {FIRST} ranges"] = partial(bare_first, client, ranges=FIRST)
        in_order = partial(our_first, client, name="fixed", access="range", shuffle=False)
        first[f"{ours}, ranges, fixed, in order"] = in_order
        for name, access in (("fixed", "range"), ("variable", "range"), ("variable", "shard")):
            first[f"{ours}, {access}s, {name}"] = partial(
                our_first, client, name=name, access=access
            )
    shards["boto3, bare"] = partial(bare_shards, "boto3")
    ranges["boto3, bare"] = partial(bare_ranges, "boto3")
    for group, samples in ((shards, None), (first, FIRST)):
        group["mosaicml-streaming, boto3"] = partial(mosaic, name="variable", samples=samples)
        group["litdata, obstore"] = partial(litdata, samples=samples)
    return found
