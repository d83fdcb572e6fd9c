"""Cached shards whose damage shows only when a sample is decoded."""

from __future__ import annotations

import multiprocessing
import shutil

import numpy as np
import pytest

from streamplug import MDSWriter
from streamplug.cache.user_cache import source_cache_dir
from streamplug.dataset import StreamingDataset
from streamplug.errors import DecodeError, StorageError

COUNT, ROWS = 24, 8


@pytest.fixture
def place(tmp_path, serve, no_waiting):
    """A served set of 3 shards of 8 texts, and where to cache it."""

    class Place:
        far, near = tmp_path / "far", tmp_path / "near"

        def write(self, **arguments):
            arguments = {"hashes": [], "size_limit": 1150, **arguments}
            with MDSWriter(out=self.far, columns={"id": "int", "text": "str"}, **arguments) as out:
                for number in range(COUNT):
                    out.write({"id": number, "text": text(number)})
            self.server = serve(self.far)
            dataset = self.open()
            assert dataset.samples_per_shard.tolist() == [ROWS] * 3
            assert [sample["text"] for sample in dataset] == [text(n) for n in range(COUNT)]
            return self

        def open(self, **arguments):
            return StreamingDataset(
                remote=self.server.url, local=str(self.near), batch_size=4, **arguments
            )

        def gets(self, shard):
            name = f"shard.{shard:05d}.mds"
            return self.server.gets[name] + self.server.gets[f"{name}.gz"]

    return Place()


def text(number: int) -> str:
    return f"{number:03d}" + "x" * 97


def damage(folder, number):
    """Let the text of a sample be none: its size, and the structure around it, stay as they are."""
    path = folder / f"shard.{number // ROWS:05d}.mds"
    data = path.read_bytes()
    assert data.count(text(number).encode()) == 1
    path.write_bytes(data.replace(text(number).encode(), b"\xff" * 100))


def one(dataset):
    return [dataset[number]["text"] for number in range(COUNT)]


def many(dataset):
    return [sample["text"] for sample in dataset[np.arange(COUNT)]]


def samples(dataset):
    return [sample["text"] for sample in dataset]


def batches(dataset):
    return [value for batch in dataset.batches() for value in batch["text"]]


WAYS = [one, many, samples, batches]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limit", [None, 4000])
@pytest.mark.parametrize("compression", [None, "gz"])
def test_damage_inside_a_cached_sample_is_healed(place, way, limit, compression, caplog):
    place.write(compression=compression)
    damage(place.near, 12)
    assert way(place.open(cache_limit=limit)) == [text(n) for n in range(COUNT)]
    assert [place.gets(shard) for shard in range(3)] == [1, 2, 1]
    assert "fetching it again" in caplog.text
    assert way(place.open()) == [text(n) for n in range(COUNT)]
    assert [place.gets(shard) for shard in range(3)] == [1, 2, 1]


def test_a_kept_compressed_file_goes_too_and_comes_again(place):
    place.write(compression="gz")
    shutil.rmtree(place.near)
    assert len(samples(place.open(keep_zip=True))) == COUNT
    damage(place.near, 12)
    assert samples(place.open(keep_zip=True)) == [text(n) for n in range(COUNT)]
    assert [place.gets(shard) for shard in range(3)] == [2, 3, 2]
    assert len(list(place.near.glob("*.gz"))) == 3


@pytest.mark.parametrize("way", WAYS)
def test_damage_where_the_set_lies_is_an_error_after_one_more_fetch(place, way):
    place.write()
    damage(place.far, 12)
    damage(place.near, 12)
    dataset = place.open()
    for _ in range(3):
        with pytest.raises(DecodeError, match=r"^shard 1 \(.*near/shard.00001.mds\): .*UTF-8"):
            way(dataset)
        assert place.gets(1) == 2  # once in a process, not each time
    # What is not damaged is still there.
    assert dataset[11]["text"] == text(11)
    assert [place.gets(shard) for shard in range(3)] == [1, 2, 1]


def test_damage_that_comes_back_is_healed_once(place):
    place.write()
    damage(place.near, 12)
    dataset = place.open()
    assert dataset[12]["text"] == text(12)
    damage(place.near, 12)  # written over in place: what is mapped changes too
    with pytest.raises(DecodeError):
        dataset[12]
    assert place.open()[12]["text"] == text(12)  # one that was opened since may try again
    assert place.gets(1) == 3


def test_of_several_threads_that_find_damage_each_reads_what_one_has_fetched(place):
    place.write()
    damage(place.near, 12)
    dataset = place.open()
    _, shard, _, _ = dataset._reader.locate(12)
    shards = dataset._reader._streams[0]
    damaged = shards.get(shard)
    healed = shards.repair(shard, damaged, DecodeError("by one thread"))
    assert shards.repair(shard, damaged, DecodeError("by another")) is healed
    assert shards.repair(shard, healed, DecodeError("still")) is None
    assert dataset[12]["text"] == text(12)
    assert place.gets(1) == 2


def test_a_set_that_is_read_in_place_is_never_changed(place):
    place.write()
    damage(place.far, 12)
    kept = {path.name: path.read_bytes() for path in place.far.iterdir()}
    for arguments in ({"local": str(place.far)}, {"remote": str(place.far)}):
        dataset = StreamingDataset(**arguments)
        for _ in range(2):
            with pytest.raises(DecodeError, match=r"^shard 1 .*UTF-8"):
                dataset[12]
    assert {path.name: path.read_bytes() for path in place.far.iterdir()} == kept


def test_a_local_set_is_unpacked_again(place):
    place.write(compression="gz")
    local = StreamingDataset(local=str(place.far))
    assert samples(local) == [text(n) for n in range(COUNT)]
    (unpacked,) = source_cache_dir(str(place.far)).glob("shards-*")
    damage(unpacked, 12)
    assert samples(StreamingDataset(local=str(place.far))) == [text(n) for n in range(COUNT)]
    assert len(list(place.far.glob("*.gz"))) == 3


def test_what_cannot_be_fetched_again_says_so(place):
    place.write()
    damage(place.near, 12)
    dataset = place.open(download_retry=0, download_patience=0)
    place.server.hooks["shard.00001.mds"] = lambda handler: handler.send_error(503) or True
    with pytest.raises(StorageError, match="answered 503"):
        dataset[12]
    place.server.hooks.clear()
    assert dataset[12]["text"] == text(12)


def _read(dataset, barrier, results):
    assert dataset[0]["text"] == text(0)
    barrier.wait(30)
    results.put(batches(dataset) == [text(n) for n in range(COUNT)])


def test_of_many_processes_that_see_the_damage_one_fetches(place):
    place.write()
    damage(place.near, 12)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.SimpleQueue()
    dataset = place.open()
    processes = [context.Process(target=_read, args=(dataset, barrier, results)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert all(results.get() for _ in processes)
    assert [place.gets(shard) for shard in range(3)] == [1, 2, 1]
