"""The command ``streamplug quickstart``."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.syntax import Syntax

import streamplug
from streamplug.cli import examples
from streamplug.dataset import StreamingDataset
from streamplug.display import pairs_table, rows_table, say, visible
from streamplug.errors import OutputExistsError, StreamplugError
from streamplug.plugin import is_known
from streamplug.transfer import make_temp_root, map_output_errors, try_directory_lock
from streamplug.types import World
from streamplug.write import MDSWriter
from streamplug_tools.report.text_format import size
from streamplug_tools.stdlib_corpus import COLUMNS, read_sample, source_files

WORLDS = (1, 2, 4, 8)
GLOBAL_BATCH = 32
MARKER_NAME = ".streamplug-quickstart"
"""File by which --clean recognizes the directory of an earlier run."""


@click.command(epilog=examples("streamplug quickstart", "streamplug quickstart --clean"))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Empty directory in which to write.  [default: a directory for temporary files]",
)
@click.option("--clean", is_flag=True, help="Only remove the files of an earlier run.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def quickstart(out: Path | None, *, clean: bool, as_json: bool) -> None:
    """Write, stream and check a real data set on this machine.

    The command needs neither a network nor torch. The data set and its cache remain, so that you can inspect
    them. --clean removes them.
    """
    console = Console(stderr=as_json)
    home = out or make_temp_root() / "quickstart"
    if clean and not home.exists():
        _run(home, out, clean=clean, as_json=as_json, console=console)
        return
    with map_output_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    with try_directory_lock(home) as alone:
        if not alone:
            raise OutputExistsError(
                f"{home} is being written by another quickstart: wait for its end, or name another directory "
                "by --out"
            )
        _run(home, out, clean=clean, as_json=as_json, console=console)


def _run(home: Path, out: Path | None, *, clean: bool, as_json: bool, console: Console) -> None:
    """Write, stream and check the data set in a directory, or remove it."""
    folder, cache = home / "data", home / "cache"
    if clean:
        present = [path for path in (folder, cache) if path.exists()]
        if out is not None and present and not (home / MARKER_NAME).is_file():
            raise OutputExistsError(
                f"{present[0]}: quickstart did not write it, as {home} has no {MARKER_NAME}: remove it "
                "yourself"
            )
        removed = remove(home, present)
        if as_json:
            click.echo(json.dumps({"directory": str(home), "removed_bytes": removed}, indent=2))
        else:
            say(f"removed {size(removed)} from {home}" if removed else f"{home}: nothing to remove")
        return
    if out is not None and out.exists() and any(out.iterdir()):
        raise OutputExistsError(
            f"--out {out} is not empty: choose another directory, or remove what an earlier run left there "
            "by --clean"
        )
    with map_output_errors(home):
        (home / MARKER_NAME).touch()
    results = write(folder, exist_ok=out is None, console=console)
    if out is None:
        shutil.rmtree(cache, ignore_errors=True)  # of the replaced data set
    results |= check_worlds(folder, cache, console)
    results |= read_samples(folder, cache)
    if find_spec("torch") is not None:
        console.print("torch is installed: reading through a DataLoader as well")
        results |= read_with_torch(folder, cache)
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results, console)
    where = "" if out is None else f" --out {shlex.quote(str(out))}"
    say(
        f"left behind: {size(stored_bytes(home))} in {home}; streamplug quickstart{where} --clean "
        "removes it",
        err=as_json,
    )


def remove(home: Path, folders: Iterable[Path]) -> int:
    """Remove what a run left in a directory, and the directory if it is empty then; return the bytes."""
    removed = stored_bytes(home)
    for folder in folders:
        shutil.rmtree(folder)
    (home / MARKER_NAME).unlink(missing_ok=True)
    removed -= stored_bytes(home)
    with suppress(OSError):
        home.rmdir()
    return removed


def stored_bytes(home: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def write(folder: Path, *, exist_ok: bool, console: Console) -> dict[str, Any]:
    """Write the corpus as a compressed, hashed MDS set."""
    paths = source_files()
    compression = "zstd:3" if is_known("compression", "zstd") else "gz:6"
    begin = time.perf_counter()
    samples = 0
    with MDSWriter(
        columns=COLUMNS,
        out=folder,
        compression=compression,
        hashes=["sha1", "xxh64"],
        size_limit="8mb",
        exist_ok=exist_ok,
    ) as writer:
        for path in track(paths, "writing", console=console, transient=True):
            if (sample := read_sample(path)) is not None:
                writer.write(sample)
                samples += 1
    sizes = [path.stat().st_size for path in folder.glob("shard.*")]
    return {
        "data_set": str(folder),
        "files": len(paths),
        "not_utf8": len(paths) - samples,
        "compression": compression,
        "shards": len(sizes),
        "stored_bytes": sum(sizes),
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
    dataset = open_dataset(folder, cache)
    paths = sorted(row["path"] for row in dataset[:])
    seen = Counter(path for batch in first for path in batch)
    repeated = len(first) * GLOBAL_BATCH - dataset.size
    if sorted(seen) != paths or seen.total() - len(seen) != repeated:
        raise StreamplugError("an epoch did not hold every sample exactly once")
    return {
        "samples": dataset.size,
        "raw_bytes": sum(path.stat().st_size for path in cache.glob("shard.*")),
        "worlds": list(WORLDS),
        "global_batches": len(first),
        "repeated_to_fill_the_last_batch": repeated,
        "same_order_on_all": True,
        "each_sample_once": True,
    }


def open_dataset(folder: Path, cache: Path, **options: Any) -> StreamingDataset:
    """Return the data set, shuffled."""
    return StreamingDataset(remote=str(folder), local=str(cache), shuffle=True, **options)


def epoch(folder: Path, cache: Path, ranks: int) -> list[list[str]]:
    """Return the sorted paths of each global batch of an epoch, read by all ranks in turn."""
    options: dict[str, Any] = {"batch_size": GLOBAL_BATCH // ranks, "columns": ["path"]}
    worlds = [World(ranks_per_node=ranks, rank=rank) for rank in range(ranks)]
    loaders = [open_dataset(folder, cache, world=world, **options).batches() for world in worlds]
    return [sorted(path for part in parts for path in part["path"]) for parts in zip(*loaders)]


def read_samples(folder: Path, cache: Path) -> dict[str, Any]:
    """Time an epoch of complete samples, and read a few by index."""
    dataset = open_dataset(folder, cache, batch_size=32)
    begin = time.perf_counter()
    tokens = sum(sample["tokens"].size for sample in dataset)
    seconds = time.perf_counter() - begin
    some_samples = []
    for index in (0, (dataset.size - 1) // 2, dataset.size - 1):
        sample = dataset[index]
        row = {"index": index, "module": sample["module"], "size": sample["size"]}
        some_samples.append({**row, "begins": sample["text"][:40]})
    return {
        "samples_per_second": round(len(dataset) / seconds),
        "megabytes_per_second": round(tokens * 3 / seconds / 1e6),  # 1 byte of text, 2 of token
        "some_samples": some_samples,
    }


def read_with_torch(folder: Path, cache: Path) -> dict[str, Any]:
    """Read an epoch through a DataLoader with two workers."""
    options: dict[str, Any] = {"batch_size": GLOBAL_BATCH, "columns": ["path", "size"]}
    dataset = streamplug.StreamingDataset(
        remote=str(folder), local=str(cache), shuffle=True, **options
    )
    loader = streamplug.StreamingDataLoader(dataset, batch_size=GLOBAL_BATCH, num_workers=2)
    seen = {path for batch in loader for path in batch["path"]}
    if len(seen) != dataset.size:
        raise StreamplugError(f"the DataLoader gave {len(seen)} of {dataset.size} samples")
    return {"dataloader_workers": 2, "dataloader_samples": len(seen)}


def show(results: dict[str, Any], console: Console) -> None:
    """Print the results and code for a next step."""
    some_samples = results["some_samples"]
    console.print("streamplug quickstart\n")
    pairs = [(key, value) for key, value in results.items() if value is not some_samples]
    console.print(pairs_table((key.replace("_", " "), _text(value)) for key, value in pairs))
    console.print("\nA few samples by index:\n")
    rows = [list(map(str, sample.values())) for sample in some_samples]
    console.print(rows_table(some_samples[0], rows))
    console.print("\nWhat you would write next:\n")
    remote = visible(json.dumps(results["data_set"], ensure_ascii=False))
    code = Syntax("", "python", background_color="default").highlight(_NEXT.format(remote=remote))
    console.print(code, soft_wrap=True)  # can be copied at any width


def _text(value: Any) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)


_NEXT = """\
from streamplug import StreamingDataLoader, StreamingDataset

dataset = StreamingDataset(  # remote may be s3://bucket/prefix, too
    remote={remote}, local="my-cache",
    shuffle=True, batch_size=32, columns=["path", "size"],
)
print(dataset[0]["path"], len(dataset))
loader = StreamingDataLoader(dataset, batch_size=32, num_workers=2)
for batch in loader:  # without torch: for batch in dataset.batches():
    state = loader.state_dict()  # all it takes to resume here, anywhere
"""
