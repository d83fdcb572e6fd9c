"""Ends of loops whose workers wait for a storage that is away: none waits on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import pytest
from streamplug_testing.http import serving

torch = pytest.importorskip("torch")
pytest.importorskip("aiohttp")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.run import hints  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

BATCH = 4
SOON = 60.0  # the storage is waited for 10 minutes, and torch waits as long for a worker to end


class Site:
    """A server that goes away after the first batch of each worker."""

    def __init__(self, server: Any) -> None:
        self.server, self.refused, self.open = server, threading.Semaphore(0), set[str]()
        server.refuses = self.refuse

    def refuse(self, method: str, target: str) -> int:
        if "shard" not in target or target.rpartition("/")[2] in self.open:
            return 0
        self.refused.release()
        return 503


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 600.0)
    with MDSWriter(
        out=tmp_path / "far", columns={"n": "int", "b": "bytes"}, size_limit=2100
    ) as out:
        for n in range(16 * BATCH):
            out.write({"n": n, "b": bytes(400)})
    with serving(tmp_path / "far") as server:
        yield Site(server)


def load(site, tmp_path, workers, **options):
    dataset = StreamingDataset(
        remote=site.server.url, local=str(tmp_path / "near"), batch_size=BATCH, predownload=BATCH
    )
    return StreamingDataLoader(dataset, num_workers=workers, **options)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_is_left_ends_the_waits_of_its_workers(site, tmp_path, persistent):
    before = set(multiprocessing.active_children())
    site.open = {f"shard.{number:05}.mds" for number in range(2)}
    loader = load(site, tmp_path, 2, persistent_workers=persistent)
    loop = iter(loader)
    assert next(loop)["n"].tolist() == list(range(BATCH))
    for _ in range(2 * 8 * 2):  # two attempts of each thread: all wait, and workers wait for them
        assert site.refused.acquire(timeout=60)
    began = time.monotonic()
    loop.close()
    del loop, loader
    assert time.monotonic() - began < SOON
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_ends_the_wait(site, tmp_path, workers):
    before = set(multiprocessing.active_children())
    loader = load(site, tmp_path, workers)
    ended = []

    def interrupt() -> None:
        for _ in range(2):
            site.refused.acquire(timeout=60)
        ended.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    thread.join()
    del loader
    assert time.monotonic() - ended[0] < SOON
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(("timeout", "is_warned"), [(0, False), (60, True), (601, False)])
def test_a_timeout_that_ends_a_wait_is_warned_of(
    site, tmp_path, caplog, monkeypatch, timeout, is_warned
):
    monkeypatch.setattr(hints, "_logged", set())
    load(site, tmp_path, 2, timeout=timeout)
    said = (
        "timeout=60 of the loader is not longer than download_patience=600: when a storage is away"
    )
    assert (said in caplog.text) == is_warned
