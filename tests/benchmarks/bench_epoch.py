"""What it costs to begin an epoch: the ids of its first batch, here and with mosaicml-streaming.

Both plan the same data set without data, shuffled, for one node of eight ranks: shards of 10,000 samples,
batches of 256. Each measurement is a process of its own; the two libraries take turns. What is timed are
the ids of the first batch of a rank, from the sizes of the shards. Run it as
``python tests/benchmarks/bench_epoch.py``; the figures are printed as a table to the standard error stream,
and as JSON to the standard output.
"""

from __future__ import annotations

import argparse
import json
import resource
import runpy
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

BATCH, RANKS, SHARD, SEED = 256, 8, 10_000, 9176


def of_streamplug(samples: int) -> Callable[[], Any]:
    from streamplug.plan import (
        ElasticPlanner,
        Position,
        Segment,
        ShardSampler,
        Streams,
        WeightedMixture,
    )
    from streamplug.plugin import make
    from streamplug.types import World

    starts = np.arange(samples // SHARD + 1, dtype=np.int64) * SHARD
    algorithm = make("shuffle", "window")
    mixture = WeightedMixture((samples,), "balanced", 1, ShardSampler())
    streams = Streams(starts, [0, len(starts) - 1], mixture, algorithm, shuffled=True, seed=SEED)
    planner, world = ElasticPlanner(streams), World(1, RANKS)
    nodes = algorithm.default_canonical_nodes(1)
    segments = [Segment(Position(), world, BATCH * RANKS, nodes)]
    return lambda: planner.epoch(0, segments).ids(world, np.zeros(1, np.int64))[0]


def of_mosaic(samples: int) -> Callable[[], Any]:
    runpy.run_path(str(Path(__file__).parents[1] / "peers" / "stubs.py"))["install"]()
    warnings.simplefilter("ignore")
    import streaming

    streams = [streaming.Stream(local="nowhere")]
    sizes = np.full(samples // SHARD, SHARD)
    streaming.Stream.validate_weights(streams)
    plan = SimpleNamespace(
        streams=streams,
        num_streams=1,
        shuffle_seed=SEED,
        samples_per_shard=sizes,
        sample_offset_per_shard=np.cumsum(sizes) - sizes,
        shards_per_stream=np.array([len(sizes)]),
        shard_offset_per_stream=np.array([0]),
        epoch_size=streaming.Stream.apply_weights(streams, np.array([samples]), None, SEED),
        # Its defaults, of which these depend on the number of nodes.
        num_canonical_nodes=64,
        shuffle_block_size=max(4_000_000 // 64, 1 << 18),
        batch_size=BATCH,
        partition_algo="relaxed",
        initial_physical_nodes=1,
        shuffle=True,
        shuffle_algo="py1e",
        sampling_method="balanced",
        sampling_granularity=1,
        epoch_seed_change=True,
    )
    plan.resample_streams = MethodType(streaming.StreamingDataset.resample_streams, plan)
    world = streaming.base.world.World(1, RANKS, 1, worker=0)
    return lambda: streaming.base.batching.generate_work("random", plan, world, 0, 0)[0, 0, 0, 0]


LIBRARIES = {"streamplug": of_streamplug, "mosaicml-streaming": of_mosaic}


def measure(library: str, samples: int) -> dict[str, float]:
    begin = LIBRARIES[library](samples)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    ids = np.asarray(begin()).reshape(-1)
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    if ids.shape != (BATCH,) or len(set(ids.tolist())) < BATCH or ids.max() >= samples:
        sys.exit(f"these are no ids: {ids}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "processor": processor, "mb": grown / 1024}


def in_process(library: str, samples: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--library", library, "--samples", str(samples)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--library", choices=LIBRARIES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.library:
        print(json.dumps(measure(arguments.library, arguments.samples[0])))
        return
    found: dict[str, Any] = {}
    for samples in arguments.samples:
        rounds = [
            {library: in_process(library, samples) for library in LIBRARIES}
            for _ in range(arguments.rounds)
        ]
        medians = {
            library: {
                name: round(statistics.median(each[library][name] for each in rounds), 4)
                for name in ("seconds", "processor", "mb")
            }
            for library in LIBRARIES
        }
        ours, theirs = (medians[library] for library in LIBRARIES)
        ratio = {name: round(theirs[name] / ours[name], 1) for name in ("seconds", "processor")}
        found[str(samples)] = {**medians, "ratio": ratio}
        print(f"{samples:>13,} samples", file=sys.stderr)
        for library, figures in medians.items():
            text = f"{figures['seconds']:.4f} s, {figures['mb']:,.0f} MB more"
            print(f"  {library:20} {text}", file=sys.stderr)
        print(f"  {'times faster':20} {ratio['seconds']:,}", file=sys.stderr)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
