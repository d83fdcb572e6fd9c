"""All ways to write files on this machine: what is there before, the call, and what may be read after it."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug import MDSWriter, write_parts
from streamplug.dataset import StreamingDataset
from streamplug.errors import NotFound
from streamplug.plugin.location import open_storage
from tests.faults.power_loss import TIME

COLUMNS = {"n": "int", "data": "bytes"}
OLD, NEW = [0, 1, 2], [7, 8, 9]


def sample(n: int) -> dict[str, Any]:
    return {"n": n, "data": hashlib.blake2b(bytes([n])).digest()}


def write(out: Path, numbers: Iterable[int], **options: Any) -> None:
    with MDSWriter(out=out, columns=COLUMNS, max_samples_per_shard=2, **options) as writer:
        for n in numbers:
            writer.write(sample(n))


def read(**options: Any) -> list[int]:
    """Return the numbers of a data set whose samples are all right."""
    numbers = []
    for row in StreamingDataset(batch_size=1, **options):
        n = int(row["n"])
        assert row["data"] == sample(n)["data"], f"sample {n} is damaged"
        numbers.append(n)
    return numbers


def write_in_parts(out: Any, numbers: Iterable[int], **options: Any) -> None:
    write_parts(
        lambda n: [sample(n), sample(n)],
        list(numbers),
        columns=COLUMNS,
        out=out,
        processes=0,
        exist_ok=True,
        max_samples_per_shard=1,
        **options,
    )


@dataclass
class Way:
    """A way to write below `disk`: what is there before, the call, and what may be read afterwards."""

    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    read: Callable[[Path], Any]
    new: Any
    old: tuple[
        Any, ...
    ] = ()  # None is nothing; that the call ends, too, what the first of two would


def none(_: Path) -> None:
    """There is nothing before."""


def convert(disk: Path) -> None:
    tools = importlib.import_module("streamplug_tools")
    options = {"size_limit": 250, "processes": 0, "exist_ok": True}
    tools.convert(disk / "from", tools.Output(out=str(disk / "set"), **options))


def prepare_parts(disk: Path) -> None:
    write(disk / "set" / "b", OLD)
    write(disk / "set" / "a", NEW)


def merge(disk: Path) -> None:
    importlib.import_module("streamplug_tools.merge").merge_index(disk / "set")


def commit(disk: Path) -> None:
    view = importlib.import_module("streamplug_views").View
    view.of(disk / "from").where("n > 0").commit(disk / "view")


def commit_again(disk: Path) -> None:
    view = importlib.import_module("streamplug_views").View
    view.of(disk / "from").where("n > 1").commit(disk / "view")


def scan(disk: Path) -> None:
    tools = importlib.import_module("streamplug_tools.index_writer")
    tools.scan_index(str(disk / "set"), "jsonl", exist_ok=True)


def prepare_text(disk: Path) -> None:
    importlib.import_module("streamplug_text")
    (disk / "set").mkdir()
    for name in "ab":
        path = disk / "set" / f"{name}.jsonl"
        path.write_text('{"n": 1}\n{"n": 2}\n')
        os.utime(path, (TIME, TIME))


def read_text(**options: Any) -> list[int]:
    return [int(row["n"]) for row in StreamingDataset(batch_size=1, **options)]


def upload(disk: Path) -> None:
    storage = open_storage(str(disk / "deep" / "store"))
    storage.write("a/written", b"new" * 50)
    storage.upload(disk / "source", "uploaded")
    if not storage.exists("created"):
        storage.create("created", b"new" * 50)


def read_uploads(disk: Path) -> list[bytes | None]:
    found = []
    for name in ("a/written", "uploaded", "created"):
        try:
            found.append(open_storage(str(disk / "deep" / "store")).read(name))
        except NotFound:
            found.append(None)
    assert {*found} <= {b"new" * 50, None}
    return found


def cached(**options: Any) -> Callable[[Path], list[int]]:
    return lambda disk: read(remote=str(disk / "far"), local=str(disk / "near"), **options)


def read_two(disk: Path) -> list[int]:
    found = read(local=str(disk / "near"))
    assert read(local=str(disk / "far")) == found
    return found


def read_set(disk: Path) -> list[int]:
    return read(local=str(disk / "set"))


WAYS = {
    "writer": Way(none, lambda d: write(d / "set", NEW, exist_ok=True), read_set, NEW),
    "writer into new directories": Way(
        none,
        lambda d: write(d / "deep" / "set", NEW, exist_ok=True),
        lambda d: read(local=str(d / "deep" / "set")),
        NEW,
    ),
    "writer with gzip": Way(
        none, lambda d: write(d / "set", NEW, exist_ok=True, compression="gz"), read_set, NEW
    ),
    "writer that replaces": Way(
        lambda d: write(d / "set", OLD),
        lambda d: write(d / "set", NEW, exist_ok=True),
        read_set,
        NEW,
        (OLD,),
    ),
    "writer to two places": Way(
        none,
        lambda d: write((d / "near", str(d / "far")), NEW, exist_ok=True, keep_local=True),
        read_two,
        NEW,
    ),
    "append": Way(
        lambda d: write(d / "set", OLD),
        lambda d: write(d / "set", NEW, append=True),
        read_set,
        OLD + NEW,
        (OLD,),
    ),
    "parts": Way(none, lambda d: write_in_parts(d / "set", NEW), read_set, [7, 7, 8, 8, 9, 9]),
    "parts that replace": Way(
        lambda d: write_in_parts(d / "set", OLD),
        lambda d: write_in_parts(d / "set", NEW),
        read_set,
        [7, 7, 8, 8, 9, 9],
        ([0, 0, 1, 1, 2, 2],),
    ),
    "parts that replace a set": Way(
        lambda d: write(d / "set", OLD),
        lambda d: write_in_parts(d / "set", NEW),
        read_set,
        [7, 7, 8, 8, 9, 9],
        (OLD,),
    ),
    "copy of parts": Way(
        lambda d: write_in_parts(d / "far", NEW),
        lambda d: write_in_parts((d / "set", f"file://{d}/far"), NEW, keep_local=True),
        read_set,
        [7, 7, 8, 8, 9, 9],
    ),
    "merge": Way(prepare_parts, merge, read_set, NEW + OLD),
    "convert": Way(lambda d: write(d / "from", NEW), convert, read_set, NEW),
    "commit of a view": Way(
        lambda d: write(d / "from", OLD), commit, lambda d: read(remote=str(d / "view")), [1, 2]
    ),
    "second commit of a view": Way(
        lambda d: (write(d / "from", OLD), commit(d)),
        commit_again,
        lambda d: read(remote=str(d / "view")),
        [2],
        ([1, 2],),
    ),
    "index of text": Way(
        prepare_text, scan, lambda d: read_text(local=str(d / "set")), [1, 2, 1, 2]
    ),
    "uploads": Way(
        lambda d: (d / "source").write_bytes(b"new" * 50), upload, read_uploads, 3 * [b"new" * 50]
    ),
    "cache": Way(lambda d: write(d / "far", NEW), cached(), cached(), NEW),
    "cache of gzip": Way(
        lambda d: write(d / "far", NEW, compression="gz"),
        cached(keep_zip=True),
        cached(keep_zip=True),
        NEW,
    ),
    "cache with a limit": Way(
        lambda d: write(d / "far", NEW), cached(cache_limit=500), cached(cache_limit=500), NEW
    ),
    "cache of a scan": Way(
        prepare_text,
        lambda d: read_text(remote=f"{d}/set", local=f"{d}/near", format="jsonl"),
        lambda d: read_text(remote=f"{d}/set", local=f"{d}/near", format="jsonl"),
        [1, 2, 1, 2],
    ),
}
CACHES = {name for name in WAYS if name.startswith("cache")}
