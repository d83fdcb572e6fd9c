"""A run as it is: ranks in processes of their own, servers of limited bandwidth, and steps together."""

from __future__ import annotations

import multiprocessing
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paced import paced

from streamplug.interfaces import Callback, EpochBegun, Event
from streamplug.simulate import Assumed
from streamplug.types import World

_PATIENCE = 240
"""Seconds."""


def run(root: Path, folder: Path, assumed: Assumed, config: dict[str, Any]) -> dict[str, Any]:
    """Run an epoch, or several, of the data set in `root`.

    Returns:
        Bytes that each node fetched, seconds until all ranks had the first batch of each epoch, that later
        steps of each were waited for, and that each took.
    """
    spawn = multiprocessing.get_context("spawn")
    ranks = assumed.nodes * assumed.ranks_per_node
    barrier, answers = spawn.Barrier(ranks), spawn.Queue()
    with ExitStack() as stack:
        urls = [
            stack.enter_context(paced(root, assumed.bandwidth, assumed.latency))
            for _ in range(assumed.nodes)
        ]
        processes = []
        for rank in range(ranks):
            node = rank // assumed.ranks_per_node
            given = {**config, "remote": urls[node], "local": str(folder / f"node{node}")}
            args = (assumed, rank, given, barrier, answers)
            processes.append(spawn.Process(target=_rank, args=args))
            processes[-1].start()
        stack.callback(lambda: [process.kill() for process in processes])
        found = dict(answers.get(timeout=_PATIENCE) for _ in processes)
        for process in processes:
            process.join(_PATIENCE)
    nodes = [0] * assumed.nodes
    for rank, each in found.items():
        nodes[rank // assumed.ranks_per_node] += each["bytes"]
    # Between barriers all ranks measure the same.
    return {**found[0], "bytes": nodes}


class Begun(Callback):
    """Notes in a file when each process begins an epoch: starting them is not simulated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_event(self, event: Event, place: World) -> None:
        if isinstance(event, EpochBegun):
            with self.path.open("a") as file:
                file.write(f"{time.perf_counter()}\n")

    def last(self) -> float:
        return max(map(float, self.path.read_text().split()))


def _rank(assumed: Assumed, rank: int, given: dict[str, Any], barrier: Any, answers: Any) -> None:
    from streamplug import StreamingDataset

    begun = Begun(Path(given["local"]).with_suffix(".begun"))
    world = World(assumed.nodes, assumed.ranks_per_node, rank=rank)
    dataset = StreamingDataset(
        **given,
        batch_size=assumed.batch_size,
        shuffle=assumed.shuffle is not None,
        shuffle_algo=assumed.shuffle or "window",
        shuffle_block_size=assumed.block_size,
        num_canonical_nodes=assumed.canonical_nodes,
        predownload=assumed.predownload,
        cache_limit=assumed.cache_limit,
        progress_bar=False,
        callbacks=[begun],
        world=world,
    )
    batches: Any = dataset.batches
    if assumed.workers:
        from streamplug import StreamingDataLoader

        loader = StreamingDataLoader(
            dataset, num_workers=assumed.workers, prefetch_factor=assumed.prefetch_factor
        )
        batches = loader.__iter__
    found: dict[str, Any] = {"first": [], "waited": [], "seconds": []}
    for _ in range(assumed.epochs):
        barrier.wait(_PATIENCE)
        begun.path.unlink(missing_ok=True)
        barrier.wait(_PATIENCE)
        waits, since = [], 0.0
        for _ in batches():
            barrier.wait(_PATIENCE)  # until all ranks have theirs
            if not waits:
                began = since = begun.last()
            waits.append(time.perf_counter() - since)
            time.sleep(assumed.step_seconds)
            since = time.perf_counter()
        found["first"].append(waits[0])
        found["waited"].append(sum(waits[1:]))
        found["seconds"].append(since - began)
    answers.put((rank, {**found, "bytes": dataset.stats().downloaded_bytes}))
    sys.stdout.flush()
