"""Data sets of several formats, near and far, read as one: the same order and states, however they are read.

A format is a line in `FORMATS`: a function that writes rows into a directory, and what a stream of it is
opened with.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import tarfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from streamplug_testing.http import serving  # noqa: E402

from streamplug import (  # noqa: E402
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    World,
    Writer,
)
from tests.start_methods import SPAWN  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, BATCH = 26, 6
Rows = list[dict[str, Any]]


class Kind(NamedTuple):
    """A format: what writes it, what a stream of it is opened with, and the packages that have it."""

    write: Callable[[Path, Rows], None]
    options: dict[str, Any]
    needs: str | None = None


def write_mds(folder: Path, rows: Rows) -> None:
    with MDSWriter(out=folder, columns={"id": "int", "text": "str"}, size_limit=300) as out:
        for row in rows:
            out.write(row)


def write_text(name: str) -> Callable[[Path, Rows], None]:
    def write(folder: Path, rows: Rows) -> None:
        writer = getattr(pytest.importorskip("streamplug_text"), name)
        with writer(out=str(folder), columns={"id": "int", "text": "str"}, size_limit=300) as out:
            for row in rows:
                out.write(row)

    return write


def write_lines(folder: Path, rows: Rows) -> None:
    folder.mkdir()
    for start in range(0, len(rows), 9):
        lines = "".join(json.dumps(row) + "\n" for row in rows[start : start + 9])
        (folder / f"x-{start:04d}.jsonl").write_text(lines)


def write_parquet(folder: Path, rows: Rows) -> None:
    columns = {"id": "int64", "text": "string"}
    with Writer(out=folder, format="parquet:4", columns=columns, size_limit=2000) as out:
        for row in rows:
            out.write(row)
    (folder / "index.json").unlink()
    for path in sorted(
        folder.glob("shard.*")
    ):  # as of another writer: ours never leaves out an index
        path.rename(path.with_name(path.name.replace("shard.", "part-")))


def write_tar(folder: Path, rows: Rows) -> None:
    folder.mkdir()
    for shard in range(0, len(rows), 9):
        with tarfile.open(folder / f"x-{shard // 9:04d}.tar", "w") as tar:
            for row in rows[shard : shard + 9]:
                for name in ("id", "text"):
                    content = str(row[name]).encode()
                    member = tarfile.TarInfo(f"{row['id']:06d}.{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


FORMATS = {
    "mds": Kind(write_mds, {}),
    "jsonl": Kind(write_text("JSONLWriter"), {}, "streamplug_text"),
    "csv": Kind(write_text("CSVWriter"), {}, "streamplug_text"),
    "plain jsonl": Kind(write_lines, {"format": "jsonl"}, "streamplug_text"),
    "parquet": Kind(write_parquet, {"format": "parquet"}, "streamplug_parquet"),
    "tar": Kind(write_tar, {"format": "webdataset"}, "streamplug_webdataset"),
}
MIXES = {
    "all": list(FORMATS),
    "all but parquet": [name for name in FORMATS if name != "parquet"],  # it has no ranges
    **{f"mds and {name}": ["mds", name] for name in FORMATS if name != "mds"},
}


def rows_of(number: int) -> Rows:
    """Return the rows of a stream; their texts say which."""
    return [
        {"id": n, "text": f"row {n} of {number}"} for n in range(number * SIZE, (number + 1) * SIZE)
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with two data sets of each format: ``NAME-near`` and ``NAME-far``."""
    folder = tmp_path_factory.mktemp("sets")
    for number, (name, kind) in enumerate(FORMATS.items()):
        if kind.needs:
            pytest.importorskip(kind.needs)
        kind.write(folder / f"{name}-near", rows_of(2 * number))
        kind.write(folder / f"{name}-far", rows_of(2 * number + 1))
    return folder


@pytest.fixture(scope="module")
def server(root):
    with serving(root) as running:
        yield running


def far_files(root: Path, name: str) -> str:
    """Return the part of a URL that names a data set: its files where a server does not list them."""
    if not FORMATS[name].options:
        return f"{name}-far"
    files = ",".join(sorted(path.name for path in (root / f"{name}-far").glob("[spx]*")))
    return f"{name}-far/{{{files}}}"


@pytest.fixture
def opened(root, server, tmp_path):
    """Return a function that opens a mix: of each format a data set that is near and one that is far."""

    def open_(mix: str, **options: Any) -> StreamingDataset:
        streams = []
        for name in MIXES[mix]:
            kind = FORMATS[name].options
            far = f"{server.url}/{far_files(root, name)}"
            streams += [
                Stream(local=str(root / f"{name}-near"), **kind),
                Stream(remote=far, local=str(tmp_path / name), **kind),
            ]
        settings = {"shuffle": True, "shuffle_block_size": 40, "batch_size": BATCH}
        return StreamingDataset(
            streams=streams,
            columns=["id", "text"],
            **{**settings, "num_canonical_nodes": 2, **options},
        )

    return open_


def ids_in(mix: str) -> list[int]:
    numbers = [list(FORMATS).index(name) for name in MIXES[mix]]
    return sorted(row["id"] for n in numbers for m in (0, 1) for row in rows_of(2 * n + m))


def checked(batch: dict[str, Any]) -> list[int]:
    """Return the ids of a batch, and look whether its texts are theirs."""
    ids = [int(n) for n in batch["id"]]
    assert list(batch["text"]) == [f"row {n} of {n // SIZE}" for n in ids]
    return ids


# -- ways to read ------------------------------------------------------------------------


class Way(NamedTuple):
    """A way to read a data set: its next epoch, its state, and how to go on from one."""

    epoch: Callable[[], Iterator[list[int]]]
    state: Callable[[], dict[str, Any]]
    load: Callable[[dict[str, Any]], None]


def one_by_one(data: StreamingDataset) -> Way:
    def epoch() -> Iterator[list[int]]:
        samples = iter(data)
        while batch := list(islice(samples, data.batch_size)):
            yield checked({name: [each[name] for each in batch] for name in batch[0]})

    return Way(epoch, data.state_dict, data.load_state_dict)


def in_batches(data: StreamingDataset, **kwargs: Any) -> Way:
    return Way(lambda: map(checked, data.batches(**kwargs)), data.state_dict, data.load_state_dict)


def in_workers(data: StreamingDataset, how: str) -> Way:
    loader = StreamingDataLoader(
        data, num_workers=2, multiprocessing_context=multiprocessing.get_context(how)
    )
    return Way(lambda: map(checked, loader), loader.state_dict, loader.load_state_dict)


WAYS: dict[str, Callable[[StreamingDataset], Way]] = {
    "samples": one_by_one,
    "batches": in_batches,
    "threads": lambda data: in_batches(data, num_threads=2),
    "forked": lambda data: in_workers(data, "fork"),
}
SPAWNED = {"spawned": lambda data: in_workers(data, SPAWN)}


# -- what holds --------------------------------------------------------------------------


@pytest.mark.parametrize("mix", MIXES)
def test_each_sample_comes_once_in_an_epoch(opened, mix):
    data = opened(mix)
    ids = ids_in(mix)
    assert data.size == len(ids)
    filled = -len(ids) % BATCH
    first, second = ([checked(batch) for batch in data.batches()] for _ in range(2))
    for epoch in (first, second):
        flat = [n for batch in epoch for n in batch]
        assert sorted(flat[: len(ids)]) == ids
        assert flat[len(ids) :] == flat[:filled]
    assert first != second
    assert checked({name: [row[name] for row in data[:]] for name in ("id", "text")}) == ids


@pytest.fixture(scope="module")
def expected():
    """Keep the batches of two epochs of each mix, by the first way that reads it."""
    return {}


@pytest.mark.parametrize("mix", ["all"])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_gives_the_same_and_goes_on_where_any_stood(opened, expected, mix, name):
    if mix not in expected:
        data = opened(mix)
        expected[mix] = [[checked(batch) for batch in data.batches()] for _ in range(2)]
    first, second = expected[mix]
    way = WAYS[name](opened(mix))
    used = 7
    assert list(islice(way.epoch(), used)) == first[:used]
    state = json.loads(json.dumps(way.state()))
    for other, way_of in WAYS.items():
        again = way_of(opened(mix))
        again.load(state)
        assert list(again.epoch()) == first[used:], other
    assert list(again.epoch()) == second


def test_it_goes_on_at_any_batch(opened):
    data = opened("all")
    whole = [checked(batch) for batch in data.batches()]
    state = opened("all").state_dict()
    for at in range(0, len(whole), 5):
        data = opened("all")
        data.load_state_dict({**state, "sample_in_epoch": at * BATCH})
        assert checked(next(data.batches())) == whole[at]


@pytest.mark.parametrize("name", SPAWNED)
def test_spawned_workers_go_on_where_forked_ones_stood(opened, name):
    data = opened("all")
    whole = [checked(batch) for batch in data.batches()]
    forked = WAYS["forked"](opened("all"))
    assert list(islice(forked.epoch(), 3)) == whole[:3]
    way = SPAWNED[name](opened("all"))
    way.load(forked.state())
    assert list(way.epoch()) == whole[3:]


@pytest.mark.parametrize(("mix", "access"), [("all", "shard"), ("all but parquet", "range")])
def test_ranks_go_on_where_one_stood(opened, mix, access):
    whole = [checked(batch) for batch in opened(mix).batches()]
    data = opened(mix)
    begun = list(islice(data.batches(), 4))
    state = data.state_dict()
    assert len(begun) == 4
    parts = []
    for rank in range(2):
        world = World(ranks_per_node=2, rank=rank)
        half = opened(mix, batch_size=BATCH // 2, world=world, access=access)
        half.load_state_dict(state)
        parts.append([checked(batch) for batch in half.batches()])
    together = [sorted(one + other) for one, other in zip(*parts)]
    assert together == [sorted(batch) for batch in whole[4:]]


def test_states_of_other_mixes_are_refused(opened):
    from streamplug.errors import StateError

    state = opened("mds and tar").state_dict()
    with pytest.raises(StateError, match="another run"):
        opened("all").load_state_dict(state)
    with pytest.raises(StateError, match=r"shards of each stream: saved|shards: those of stream"):
        opened("mds and csv").load_state_dict(state)
