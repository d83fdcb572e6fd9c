"""A run as it is: ranks in processes of their own, servers of limited bandwidth, and steps together."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paced_server import paced
from streamplug_simulate import Scenario

import streamplug
from streamplug import dataset as dataset_module
from streamplug.interfaces import Callback, EpochStarted, Event
from streamplug.types import World

_PATIENCE = 240
"""Seconds."""


def run(root: Path, folder: Path, scenario: Scenario, *, processes: bool = False) -> dict[str, Any]:
    """Run an epoch, or several, of the data set in `root`.

    Args:
        root: Where it lies.
        folder: For the caches.
        scenario: What is simulated.
        processes: Whether ranks and servers are processes, for times; else they are threads, for counts.

    Returns:
        Bytes that each node fetched, seconds until all ranks had the first batch of each epoch, that later
        steps of each were waited for, and that each took.
    """
    spawn: Any = multiprocessing.get_context("spawn")
    ranks = scenario.nodes * scenario.ranks_per_node
    barrier = spawn.Barrier(ranks) if processes else threading.Barrier(ranks)
    answers = spawn.Queue() if processes else queue.Queue()
    start = spawn.Process if processes else threading.Thread
    with ExitStack() as stack:
        urls = [
            stack.enter_context(
                paced(root, scenario.bandwidth, scenario.latency, process=processes)
            )
            for _ in range(scenario.nodes)
        ]
        members = []
        for rank in range(ranks):
            node = rank // scenario.ranks_per_node
            given = {"remote": urls[node], "local": str(folder / f"node{node}")}
            args = (scenario, rank, given, barrier, answers)
            members.append(start(target=_rank, args=args, daemon=not processes))
            members[-1].start()
        if processes:
            stack.callback(lambda: [member.kill() for member in members])
        found = dict(answers.get(timeout=_PATIENCE) for _ in members)
        for member in members:
            member.join(_PATIENCE)
    nodes = [0] * scenario.nodes
    for rank, each in found.items():
        nodes[rank // scenario.ranks_per_node] += each["bytes"]
    # Between barriers all ranks measure the same.
    return {**found[0], "bytes": nodes}


class Begun(Callback):
    """Notes in a file when each process begins an epoch: starting them is not simulated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_event(self, event: Event, world: World) -> None:
        if isinstance(event, EpochStarted):
            with self.path.open("a") as file:
                file.write(f"{time.perf_counter()}\n")

    def last(self) -> float:
        return max(map(float, self.path.read_text().split()))


def _rank(scenario: Scenario, rank: int, given: dict[str, Any], barrier: Any, answers: Any) -> None:
    begun = Begun(Path(given["local"]).with_suffix(".begun"))
    world = World(scenario.nodes, scenario.ranks_per_node, rank=rank)
    # That of torch takes seconds to be imported, and is needed for loaders only.
    torch = streamplug if scenario.workers else dataset_module
    dataset = torch.StreamingDataset(
        **given,
        batch_size=scenario.batch_size,
        shuffle=scenario.shuffle is not None,
        shuffle_algo=scenario.shuffle or "window",
        shuffle_block_size=scenario.block_size,
        num_canonical_nodes=scenario.canonical_nodes,
        predownload=scenario.predownload,
        cache_limit=scenario.cache_limit,
        progress_bar=False,
        callbacks=[begun],
        world=world,
    )
    batches: Any = dataset.batches
    if scenario.workers:
        loader = streamplug.StreamingDataLoader(
            dataset, num_workers=scenario.workers, prefetch_factor=scenario.prefetch_factor
        )
        batches = loader.__iter__
    found: dict[str, Any] = {"first": [], "waited": [], "seconds": []}
    for _ in range(scenario.epochs):
        barrier.wait(_PATIENCE)
        begun.path.unlink(missing_ok=True)
        barrier.wait(_PATIENCE)
        waits, since = [], 0.0
        for _ in batches():
            barrier.wait(_PATIENCE)  # until all ranks have theirs
            if not waits:
                began = since = begun.last()
            waits.append(time.perf_counter() - since)
            time.sleep(scenario.step_seconds)
            since = time.perf_counter()
        found["first"].append(waits[0])
        found["waited"].append(sum(waits[1:]))
        found["seconds"].append(since - began)
    answers.put((rank, {**found, "bytes": dataset.stats().downloaded_bytes}))
