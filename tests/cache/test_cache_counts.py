"""How often shards are fetched, counted at the server, against what the plan needs.

A worker reads batch after batch, and a batch needs some shards. A *run of visits* of a worker to a shard is a
longest sequence of its batches, one after the other, that all need the shard: `runs` takes them from
`StreamingDataset.explain`. While a run lasts, a worker that has the shard need not let go of it, whatever
happens to the cache; between two runs the limit may take it. So of all processes together

- every shard that is read is fetched at least once, and
- no shard is fetched more often than all workers have runs of visits to it.

How much that says depends on the order. Here a shard has 32 samples and is mixed with its neighbours, so that
each of its samples could cost a fetch, while it has four to eight runs.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import chain

import pytest

from streamplug.dataset import StreamingDataset
from streamplug.transfer.locks import file_lock
from streamplug.types import World

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
EACH, BATCH = 32, 8


def runs(far, world, **order):
    """Return how many runs of visits the workers of a single rank have, for each shard."""
    dataset = StreamingDataset(
        local=str(far), world=World(), batch_size=BATCH, shuffle_seed=1, **order
    )
    found, before = Counter(), [set() for _ in range(world.workers_per_rank)]
    for step in range(len(dataset) // BATCH):
        shards = {use.shard for use in dataset.explain(step=step, epoch=0)}
        worker = step % world.workers_per_rank
        found.update(shards - before[worker])
        before[worker] = shards
    return found


class Monitor:
    """Looks at a cache, each time at one moment of it, and notes what it has beyond its limit."""

    def __init__(self, near, limit, size):
        self.near, self.limit, self.size = near, limit, size
        self.looks, self.most, self.excess = 0, 0, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        state = self.near / ".streamplug"
        while not self._stop.wait(0.01):
            if state.is_dir():
                # A listing made meanwhile would be of no one moment.
                with file_lock(state / "lock.room", "to look"):
                    self._look(state)

    def _look(self, state):
        taken = sum(path.stat().st_size for path in self.near.glob("shard*"))
        # What is being fetched has files that are named after its lock, until it is accounted for.
        names = [path.name for path in (state / "tmp").glob("*-*-*")]
        in_flight = len({name.split("-")[0] for name in names})
        self.looks, self.most = self.looks + 1, max(self.most, taken)
        if taken > self.limit + in_flight * self.size:
            self.excess.append((taken, in_flight))


def counted(server, shards):
    return {n: server.gets[f"shard.{n:05d}.mds"] for n in range(shards)}


def read(
    tmp_path, far, server, size, readers, ends_well, *, workers, active, block, shards, limit=3
):
    """Read an epoch by so many workers through a cache of so many shards, watched."""
    near = tmp_path / "near"
    world = [World(workers_per_rank=workers, worker=worker) for worker in range(workers)]
    with Monitor(near, limit * size, size) as watch:
        ends_well(
            [
                readers(
                    "fork", remote=server.url, local=str(near), limit=limit * size, world=place,
                    out=str(tmp_path / f"out{place.worker}"), batch=BATCH, block=block, active=active,
                    predownload=None,
                )
                for place in world
            ]
        )  # fmt: skip
    seen = [(tmp_path / f"out{worker}").read_text().split() for worker in range(workers)]
    assert sorted(map(int, chain.from_iterable(seen))) == list(range(shards * EACH))
    assert watch.looks  # it gets its turn, if seldom on a busy machine
    assert watch.excess == []
    assert sum(path.stat().st_size for path in near.glob("shard*")) <= limit * size
    return counted(server, shards), runs(far, world[0], shuffle=True, shuffle_block_size=block)


@pytest.mark.parametrize("active", [1, 8] if SOAK else [1])
def test_eight_workers_fetch_no_more_than_the_plan_needs(
    tmp_path, serve, write, readers, ends_well, active
):
    far, shards = tmp_path / "far", 64 if SOAK else 12
    size = write(far, shards, EACH)
    server = serve(far)
    gets, needed = read(
        tmp_path, far, server, size, readers, ends_well,
        workers=8, active=active, block=EACH, shards=shards,
    )  # fmt: skip
    assert 4 < sum(needed.values()) / shards <= 8  # of 32
    for shard in range(shards):
        assert 1 <= gets[shard] <= needed[shard], shard


def test_one_worker_fetches_each_shard_once_for_a_run_of_visits(
    tmp_path, serve, write, readers, ends_well
):
    """Between two runs, a shard that comes back soon may still be there."""
    far, shards = tmp_path / "far", 64 if SOAK else 24
    size = write(far, shards, EACH)
    server = serve(far)
    gets, needed = read(
        tmp_path, far, server, size, readers, ends_well,
        workers=1, active=8, block=EACH, shards=shards,
    )  # fmt: skip
    once = [shard for shard in range(shards) if needed[shard] == 1]
    assert len(once) > shards / 2
    assert {gets[shard] for shard in once} == {1}
    for shard in range(shards):
        assert 1 <= gets[shard] <= needed[shard], shard


def test_where_the_cache_holds_what_is_mixed_each_shard_is_fetched_once(
    tmp_path, serve, write, readers, ends_well
):
    """Three blocks are what a window order asks of a cache; a fourth is for what is fetched ahead."""
    far, shards = tmp_path / "far", 64 if SOAK else 24
    size = write(far, shards, EACH)
    server = serve(far)
    gets, needed = read(
        tmp_path, far, server, size, readers, ends_well,
        workers=1, active=8, block=2 * EACH, shards=shards, limit=8,
    )  # fmt: skip
    assert sum(needed.values()) > 1.5 * shards
    assert set(gets.values()) == {1}
