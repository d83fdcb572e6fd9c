"""The counts of a rank take in those of its loader workers, however they are started."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402, TID251

from streamplug import Callback, MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.interfaces import EpochEnded, EpochStarted, ShardDownloaded  # noqa: E402
from streamplug.source import read_index  # noqa: E402
from streamplug.transfer.observer import emit_retry  # noqa: E402
from tests.start_methods import EVERY_METHOD, METHODS  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, BATCH, SHARDS = 60, 5, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int", "b": "bytes"}, out=out, size_limit=6_400) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "b": bytes(1000)})
    assert len(list(out.glob("*.mds"))) == SHARDS
    return str(out)


class Written(Callback):
    """Appends a line for each event to a file: workers have no other way to tell."""

    def __init__(self, path):
        self.path = str(path)

    def on_event(self, event, world):
        with Path(self.path).open("a") as file:
            file.write(f"{type(event).__name__} {world.rank} {world.worker}\n")

    def lines(self):
        with Path(self.path).open() as file:
            return file.read().splitlines()


@pytest.fixture
def make(folder, tmp_path):
    def make(**wishes: Any) -> StreamingDataset:
        near = str(tmp_path / "near")
        return StreamingDataset(remote=folder, local=near, batch_size=BATCH, **wishes)

    return make


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_workers_are_counted(make, tmp_path, method):
    written = Written(tmp_path / "events")
    dataset = make(callbacks=[written])
    loader = StreamingDataLoader(dataset, num_workers=2, multiprocessing_context=method)
    assert sum(len(batch["n"]) for batch in loader) == SIZE
    stats = dataset.stats()
    assert (stats.samples, stats.batches) == (SIZE, SIZE // BATCH)
    assert stats.downloads == SHARDS  # one of those that want a shard fetches it
    assert stats.downloads + stats.cache_hits <= 2 * SHARDS
    lines = written.lines()
    assert sorted(line for line in lines if line.startswith(EpochStarted.__name__)) == [
        "EpochStarted 0 0",
        "EpochStarted 0 1",
    ]
    assert sum(line.startswith(EpochEnded.__name__) for line in lines) == 2
    assert sum(line.startswith(ShardDownloaded.__name__) for line in lines) == SHARDS


@pytest.mark.parametrize("method", METHODS)
def test_persistent_workers_are_counted_epoch_by_epoch(make, method):
    dataset = make()
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=method,
    )
    for epoch in range(1, 4):
        list(loader)
        assert dataset.stats().samples == epoch * SIZE
    del loader
    assert dataset.stats().samples == 3 * SIZE
    assert len(list(dataset)) == SIZE  # and with them what the process itself reads
    assert dataset.stats().samples == 4 * SIZE


def test_loaders_side_by_side_are_both_counted(make):
    dataset = make()
    one = iter(DataLoader(dataset, batch_size=BATCH, num_workers=2))
    two = iter(DataLoader(dataset, batch_size=BATCH, num_workers=2))
    assert len(list(zip(one, two))) == SIZE // BATCH
    assert next(one, None) is None
    assert next(two, None) is None
    assert dataset.stats().samples == 2 * SIZE


def test_workers_that_are_stopped_early_are_counted_by_the_block(make):
    dataset = make()
    for _ in StreamingDataLoader(dataset, num_workers=2):
        break
    assert dataset.stats().samples <= SIZE
    # One that is stopped before its download is in its place leaves that to the other.
    assert dataset.stats().downloads <= 2 * SHARDS


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))]
)
def test_a_copy_counts_for_itself_and_with_its_own_workers(make, duplicate):
    dataset = make()
    list(dataset)
    other = duplicate(dataset)
    assert other.stats().samples == 0
    loader = StreamingDataLoader(other, num_workers=2)
    first = [batch["n"].tolist() for batch in loader]
    assert [batch["n"].tolist() for batch in loader] == first  # unshuffled
    assert loader.state_dict()["epoch"] == 3  # its workers have shown it that they began two
    assert dataset.stats().samples == SIZE
    assert other.stats().samples == 2 * SIZE


def test_what_happened_before_memory_was_shared_is_kept(folder, tmp_path, monkeypatch):
    def opening(*arguments, **options):
        emit_retry("the server answered 503", 0.0)
        return read_index(*arguments, **options)

    monkeypatch.setattr("streamplug.source.index_source.read_index", opening)
    dataset = StreamingDataset(remote=folder, local=str(tmp_path / "near"), batch_size=BATCH)
    assert dataset.stats().retries == 1


def test_the_loader_shows_what_workers_download(make, capsys):
    dataset = make(progress_bar=True)
    loader = StreamingDataLoader(dataset, num_workers=2)
    for _ in loader:
        pass
    assert capsys.readouterr().err.count("downloading") == 1
    assert not [t for t in threading.enumerate() if t.name == "streamplug-progress"]


def test_without_workers_there_is_one_line(make, capsys):
    for _ in StreamingDataLoader(make(progress_bar=True), num_workers=0):
        pass
    assert capsys.readouterr().err.count("downloading") == 1
