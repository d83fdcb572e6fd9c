"""The command ``streamplug quickstart``."""

from __future__ import annotations

import getpass
import json
import shutil
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.syntax import Syntax
from rich.table import Table

from streamplug.cli.stdlib_corpus import COLUMNS, samples, sources
from streamplug.dataset import StreamingDataset
from streamplug.errors import StreamplugError
from streamplug.plugin.registry import is_known
from streamplug.types import World
from streamplug.write import MDSWriter

WORLDS = (1, 2, 4, 8)
GLOBAL_BATCH = 32


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write the data set; must be empty.  [default: a directory for temporary files]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def quickstart(out: Path | None, *, as_json: bool) -> None:
    """Write, shuffle, stream and check a real data set; needs no network and no torch."""
    console = Console(stderr=as_json)
    fresh = out is None
    home = out or Path(tempfile.gettempdir()) / f"streamplug-quickstart-{getpass.getuser()}"
    results = write(home / "data", exist_ok=fresh, console=console)
    cache = home / "cache"
    if fresh:
        shutil.rmtree(cache, ignore_errors=True)  # of the replaced data set
    results |= check_worlds(home / "data", cache, console)
    results |= read_some(home / "data", cache)
    if find_spec("torch") is not None:
        console.print("torch is installed: reading through a DataLoader as well")
        results |= through_torch(home / "data", cache)
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results, console)


def write(folder: Path, *, exist_ok: bool, console: Console) -> dict[str, Any]:
    """Write the corpus as a compressed, hashed MDS set."""
    paths = sources()
    compression = "zstd:3" if is_known("compression", "zstd") else "gz:6"
    unreadable: list[Path] = []
    begin = time.perf_counter()
    with MDSWriter(
        columns=COLUMNS,
        out=folder,
        compression=compression,
        hashes=["sha1", "xxh64"],
        size_limit="8mb",
        exist_ok=exist_ok,
    ) as writer:
        for sample in track(
            samples(paths, unreadable), "writing", len(paths), console=console, transient=True
        ):
            writer.write(sample)
    stored = sum(path.stat().st_size for path in folder.glob("shard.*"))
    return {
        "data_set": str(folder),
        "files": len(paths),
        "not_utf8": len(unreadable),
        "compression": compression,
        "shards": len(list(folder.glob("shard.*"))),
        "stored_bytes": stored,
        "write_seconds": round(time.perf_counter() - begin, 3),
    }


def check_worlds(folder: Path, cache: Path, console: Console) -> dict[str, Any]:
    """Check that epochs on several numbers of ranks have the same order, and each sample exactly once."""
    first: list[list[str]] = []
    for ranks in track(WORLDS, "streaming on 1, 2, 4 and 8 ranks", console=console, transient=True):
        batches = epoch(folder, cache, ranks)
        first = first or batches
        if batches != first:
            raise StreamplugError(f"the order on {ranks} ranks differs from that on {WORLDS[0]}")
    dataset = StreamingDataset(remote=str(folder), local=str(cache))
    paths = [row["path"] for row in dataset[:]]
    seen = Counter(path for batch in first for path in batch)
    filled = len(first) * GLOBAL_BATCH - dataset.size
    if (
        set(seen) != set(paths)
        or seen.total() - len(seen) != filled
        or len(set(paths)) != len(paths)
    ):
        raise StreamplugError("an epoch did not hold every sample exactly once")
    return {
        "samples": dataset.size,
        "raw_bytes": sum(path.stat().st_size for path in cache.glob("shard.*")),
        "worlds": list(WORLDS),
        "global_batches": len(first),
        "repeated_to_fill_the_last_batch": filled,
        "same_order_on_all": True,
        "each_sample_once": True,
    }


def epoch(folder: Path, cache: Path, ranks: int) -> list[list[str]]:
    """Return the sorted paths of each global batch of an epoch, read by all ranks in turn."""
    loaders = [
        StreamingDataset(
            remote=str(folder),
            local=str(cache),
            shuffle=True,
            batch_size=GLOBAL_BATCH // ranks,
            columns=["path"],
            world=World(ranks_per_node=ranks, rank=rank),
        ).batches()
        for rank in range(ranks)
    ]
    return [sorted(path for part in parts for path in part["path"]) for parts in zip(*loaders)]


def read_some(folder: Path, cache: Path) -> dict[str, Any]:
    """Time an epoch of complete samples, and read a few by index."""
    dataset = StreamingDataset(remote=str(folder), local=str(cache), shuffle=True, batch_size=32)
    begin = time.perf_counter()
    tokens = sum(sample["tokens"].size for sample in dataset)
    seconds = time.perf_counter() - begin
    picked = np.linspace(0, dataset.size - 1, 3).astype(int)
    return {
        "samples_per_second": round(len(dataset) / seconds),
        "megabytes_per_second": round(tokens * 3 / seconds / 1e6),  # 1 byte of text, 2 of token
        "some_samples": [
            {
                "index": int(index),
                "module": sample["module"],
                "size": sample["size"],
                "begins": str(sample["text"])[:40],
            }
            for index, sample in zip(picked, dataset[picked])
        ],
    }


def through_torch(folder: Path, cache: Path) -> dict[str, Any]:
    """Read an epoch through a DataLoader with two workers."""
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    dataset = TorchDataset(
        remote=str(folder),
        local=str(cache),
        shuffle=True,
        batch_size=GLOBAL_BATCH,
        columns=["path", "size"],
    )
    loader = StreamingDataLoader(dataset, batch_size=GLOBAL_BATCH, num_workers=2)
    seen = {path for batch in loader for path in batch["path"]}
    if len(seen) != dataset.size:
        raise StreamplugError(f"the DataLoader gave {len(seen)} of {dataset.size} samples")
    return {"dataloader_workers": 2, "dataloader_samples": len(seen)}


def show(results: dict[str, Any], console: Console) -> None:
    """Print the results and code for a next step."""
    table = Table(title="streamplug quickstart", show_header=False)
    for key, value in results.items():
        if key != "some_samples":
            text = (
                f"{value:,}"
                if isinstance(value, int) and not isinstance(value, bool)
                else str(value)
            )
            table.add_row(key.replace("_", " "), text)
    console.print(table)
    samples_table = Table("index", "module", "size", "begins", title="a few samples by index")
    for sample in results["some_samples"]:
        samples_table.add_row(*(str(value) for value in sample.values()))
    console.print(samples_table)
    console.print("What you would write next:\n")
    code = Syntax("", "python", background_color="default").highlight(_NEXT.format(**results))
    console.print(code, soft_wrap=True)  # can be copied at any width


_NEXT = """\
from streamplug import StreamingDataLoader, StreamingDataset

dataset = StreamingDataset(  # remote may be s3://bucket/prefix, too
    remote="{data_set}", local="/tmp/my-cache",
    shuffle=True, batch_size=32, columns=["path", "size"],
)
print(dataset[0]["path"], len(dataset))
loader = StreamingDataLoader(dataset, batch_size=32, num_workers=2)
for batch in loader:  # without torch: for batch in dataset.batches():
    state = loader.state_dict()  # all it takes to resume here, anywhere
"""
