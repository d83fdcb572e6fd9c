"""States of loaders, and what unfinished writes leave for those that continue them."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from streamplug import StreamingDataset, World, Writer, merge_index, write_parts
from streamplug.interfaces import Engine
from tests.fuzz import data_sets
from tests.fuzz.parsers import Parser

COLUMNS = {"id": "int", "tokens": "ndarray:uint16"}


def find_records(folder: Path) -> Iterator[Parser]:
    """Yield those whose libraries are installed; `folder` is for their files."""
    folder.mkdir(parents=True)
    yield from _states(folder / "set")
    yield from _writes(folder)


# -- states --------------------------------------------------------------------------------------


def _states(folder: Path) -> Iterator[Parser]:
    with Writer(out=folder, columns=COLUMNS, max_samples_per_shard=8) as writer:
        for number in range(64):
            writer.write({"id": number, "tokens": np.arange(1 + number % 7, dtype=np.uint16)})
    for name, make in (
        ("loader", _loader),
        ("packing", _packing),
        ("budget", _budget),
        ("mosaic", _mosaic),
    ):
        with suppress(ImportError):
            loader = make(folder)
            _start(loader)
            yield f"state-{name}", _resume(make, folder), [_state(loader)]
    with suppress(ImportError):
        ranks = [_packing(folder, world=World(1, 2, rank=rank)) for rank in range(2)]
        for loader in ranks:
            _start(loader)
        states = b"[%b,%b]" % tuple(map(_state, ranks))
        resume = _resume(lambda folder: _packing(folder, batch_size=8), folder)
        yield "state-packing-ranks", resume, [states]


def _state(loader: Any) -> bytes:
    return json.dumps(loader.state_dict()).encode()


def _resume(make: Callable[[Path], Any], folder: Path) -> Callable[[bytes], None]:
    def resume(data: bytes) -> None:
        state = None
        with suppress(ValueError, RecursionError):  # of json, which is not ours
            state = json.loads(data)
        if isinstance(state, (dict, list)):
            loader = make(folder)
            loader.load_state_dict(state)
            _start(loader)

    return resume


def _start(loader: Any) -> None:
    for _ in itertools.islice(loader, 2):
        pass


def _dataset(folder: Path, **options: Any) -> StreamingDataset:
    options = {"batch_size": 4, **options}
    return StreamingDataset(local=str(folder), shuffle=True, num_canonical_nodes=1, **options)


def _loader(folder: Path) -> Any:
    from streamplug.adapters.torch import StreamingDataLoader

    return StreamingDataLoader(_dataset(folder))


def _packing(folder: Path, **options: Any) -> Any:
    from streamplug_packing import PackingDataLoader

    return PackingDataLoader(_dataset(folder, **options), length=16, size="tokens")


def _budget(folder: Path) -> Any:
    from streamplug_budget import BatchBudget

    from streamplug.adapters.torch import StreamingDataLoader

    budget = BatchBudget(limit=20, column="tokens")
    dataset = _dataset(folder, batch_size=None, batching_method="budget", batch_budget=budget)
    return StreamingDataLoader(dataset)


def _mosaic(folder: Path) -> Any:
    from streamplug_mosaic import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=4, num_canonical_nodes=1)
    return StreamingDataLoader(dataset, batch_size=4, collate_fn=list)


# -- writes ----------------------------------------------------------------------------------------


class _InProcess(Engine):
    """Writes parts one after the other."""

    def run(self, task: Callable[[int], None], numbers: Any) -> Iterator[int]:
        for number in numbers:
            task(number)
            yield number


def _rows(part: int) -> Iterator[dict[str, Any]]:
    for number in range(4):
        yield {"id": 4 * part + number}


def _write_parts(out: Path) -> None:
    write_parts(
        _rows,
        range(2),
        columns={"id": "int"},
        out=out,
        engine=_InProcess(),
        durable=False,
        max_samples_per_shard=2,
    )


def _append(out: Path) -> None:
    with Writer(out=out, append=True, durable=False) as writer:
        for row in data_sets.ROWS:
            writer.write({**row, "array": np.arange(2), "json": None})


def _writes(folder: Path) -> Iterator[Parser]:
    _write_parts(folder / "parts")
    (folder / "parts/index.json").unlink()
    data_sets.write_mds(folder / "appended")
    data_sets.write_mds(folder / "merged/a")
    data_sets.write_mds(folder / "merged/b")
    for name, file, write in (
        ("parts", "parts.json", _write_parts),
        ("parts", "part-00001/index.json", _write_parts),
        ("appended", "index.json", _append),
        ("merged", "b/index.json", merge_index),
    ):
        whole = folder / name

        def run(
            data: bytes, whole: Path = whole, file: str = file, write: Callable[..., Any] = write
        ) -> None:
            copy = folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            (copy / file).write_bytes(data)
            write(str(copy))

        yield f"{name}-{file.replace('/', '-')}", run, [(whole / file).read_bytes()]
