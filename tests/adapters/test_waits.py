"""A loader says what its loop waits for, in one process, with threads and with workers."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.builtin.encodings.scalar import Int  # noqa: E402
from streamplug.builtin.local_storage import LocalStorage  # noqa: E402
from streamplug.transfer import CAUSES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SIZE, BATCH, PAUSE = 24, 4, 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, size_limit=230) as writer:
        for n in range(SIZE):
            writer.write({"n": n})
    return str(out)


def waits(dataset):
    stats = dataset.stats()
    found = {cause: getattr(stats, f"{cause}_wait_seconds") for cause in CAUSES}
    assert sum(found.values()) == pytest.approx(stats.wait_seconds)
    return found


def pause(sample):
    time.sleep(PAUSE)
    return sample


def pause_batch(batch):
    time.sleep(PAUSE * BATCH)
    return batch


class SlowInt(Int):
    def decode_batch(self, buffer, starts, sizes):
        time.sleep(PAUSE * len(starts))
        return super().decode_batch(buffer, starts, sizes)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{"transform": pause}, {"batch_transform": pause_batch}])
def test_a_slow_transform_is_waited_for(folder, workers, options):
    dataset = StreamingDataset(local=folder, batch_size=BATCH)
    loader = StreamingDataLoader(dataset, num_workers=workers, **options)
    began = time.perf_counter()
    assert sum(len(batch["n"]) for batch in loader) == SIZE
    seconds, found = time.perf_counter() - began, waits(dataset)
    assert found["transform"] >= SIZE * PAUSE * (0.9 if not workers else 0.2)
    assert sum(found.values()) <= seconds


def test_time_of_the_step_is_not_counted(folder):
    dataset = StreamingDataset(local=folder, batch_size=BATCH)
    for loader in (StreamingDataLoader(dataset), dataset.batches(), dataset):
        before, began, steps = dataset.stats().wait_seconds, time.perf_counter(), 0.0
        for _ in loader:
            step = time.perf_counter()
            time.sleep(0.01)
            steps += time.perf_counter() - step
        seconds = time.perf_counter() - began
        assert 0 < dataset.stats().wait_seconds - before <= seconds - steps


def test_what_a_running_loop_has_waited_is_counted(folder):
    dataset = StreamingDataset(local=folder, batch_size=BATCH)
    batches = iter(StreamingDataLoader(dataset, transform=pause))
    next(batches)
    first = waits(dataset)["transform"]
    assert first >= 0.9 * BATCH * PAUSE
    next(batches)
    second = waits(dataset)["transform"]
    assert second >= first + 0.9 * BATCH * PAUSE
    batches.close()
    assert waits(dataset)["transform"] == pytest.approx(second)


@pytest.mark.parametrize("threads", [0, 2])
def test_slow_decoding_is_waited_for(folder, threads):
    dataset = StreamingDataset(local=folder, batch_size=BATCH, decoders={"n": lambda _: SlowInt()})
    assert sum(1 for _ in dataset.batches(num_threads=threads)) == SIZE // BATCH
    found = waits(dataset)
    assert found["decode"] >= SIZE * PAUSE * (0.9 if not threads else 0.3)
    assert found["storage"] == found["transform"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_storage_is_waited_for(folder, tmp_path, workers, monkeypatch):
    download = LocalStorage.download

    def slow(self, key, path):
        time.sleep(PAUSE * BATCH)
        download(self, key, path)

    dataset = StreamingDataset(remote=folder, local=str(tmp_path / "near"), batch_size=BATCH)
    monkeypatch.setattr(LocalStorage, "download", slow)
    loader = StreamingDataLoader(
        dataset, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    assert sum(len(batch["n"]) for batch in loader) == SIZE
    found = waits(dataset)
    assert found["storage"] >= PAUSE
    assert found["transform"] == 0
