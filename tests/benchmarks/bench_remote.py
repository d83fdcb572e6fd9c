"""Reading from an object store on this machine, beside clients alone and other libraries.

    python tests/benchmarks/bench_remote.py [--rounds 3] [--json FILE]

nginx, or without it the server of the tests, gives plain files by HTTP; clients of S3 get the same files
from it. Each measurement is a process of its own, in turns. It does its work several times, each time with
a new client and an empty cache. Reported are medians over all rounds: of the first time, from the start of
the process on and without it, of the later times, and of the time of processors that those took; and the best
of the later times, of which the rates are: what else the machine does can only add to it.

- shards: all samples of whole shards, beside downloading the files, eight at a time.
- shards by a network: the same where the server gives each connection 50 MB/s, 400 MB/s in all.
- ranges: 1,000 of the samples, of 50 to 150 kB, in random order, beside range requests, 16 at a time.
- epoch by ranges: all samples, by ranges.
- first batch: eight samples, shuffled or in order, from a server that is 20 ms away, beside a request for the
  index and one for 100 kB, and beside the index and eight such at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import remote_sides
import servers
from remote_sides import NETWORK

SAMPLE, SHARD_BYTES, PICKED, PACE = 100_000, 1 << 24, 1000, 50_000_000
NEEDS = {
    "mosaicml-streaming": "streaming",
    "litdata": "litdata",
    "s3fs": "s3fs",
    "obstore": "obstore",
}
NEEDS |= {"boto3": "boto3"}


@cache
def noise(samples: int) -> tuple[bytes, list[int]]:
    """Return bytes that cannot be compressed, and how many of them each sample takes."""
    draws = np.random.default_rng(0)
    sizes = draws.integers(SAMPLE // 2, SAMPLE * 3 // 2, samples)
    return draws.bytes(2 * SAMPLE + samples), sizes.tolist()


def row(samples: int, number: int) -> dict[str, bytes]:
    data, sizes = noise(samples)
    return {"x": data[number : number + sizes[number]]}


def write(root: Path, samples: int) -> None:
    from streamplug import MDSWriter, StreamingDataset

    bench = root / "bench"
    with MDSWriter(out=bench / "variable", columns={"x": "bytes"}, size_limit=SHARD_BYTES) as out:
        for n in range(samples):
            out.write(row(samples, n))
    columns = {"x": f"ndarray:uint8:{SAMPLE}"}
    data = np.frombuffer(noise(samples)[0], np.uint8)
    with MDSWriter(out=bench / "fixed", columns=columns, size_limit=SHARD_BYTES) as out:
        for n in range(samples):
            out.write({"x": data[n : n + SAMPLE]})
    ids = np.random.default_rng(1).permutation(samples)[:PICKED]
    np.save(root / "ids.npy", ids)
    dataset = StreamingDataset(local=str(bench / "variable"))
    places = []
    for number in ids.tolist():
        _, shard, _, place = dataset._reader.locate(number)
        places.append((shard, *dataset._reader.open(shard).reader.byte_range(place)))
    np.save(root / "places.npy", np.array(places))
    if find_spec("litdata"):
        import litdata

        litdata.optimize(
            fn=partial(row, samples),
            inputs=list(range(samples)),
            output_dir=str(bench / "litdata"),
            chunk_bytes=SHARD_BYTES,
            num_workers=1,
            verbose=False,
        )


def in_process(group: str, name: str, port: int, root: Path, passes: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--group", group, "--side", name, "--port", str(port)]
    command += ["--root", str(root), "--passes", str(passes)]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    keys |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    began = time.time()
    environment = {**os.environ, **keys}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{group}, {name}:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    first, *later = found["seconds"]
    cold, processor = found["at"] - began, found["processor"][1:]
    return {"cold": cold, "first": first, "later": later, "processor": processor}


def measure_one(options: argparse.Namespace) -> None:
    side, seconds, at = remote_sides.sides()[options.group][options.side], [], 0.0
    processor: list[float] = []
    for _ in range(options.passes):
        busy = time.process_time()
        seconds.append(side(options.port, options.root))
        processor.append(time.process_time() - busy)
        at = at or time.time()
    print(json.dumps({"at": at, "seconds": seconds, "processor": processor}), flush=True)
    os._exit(0)  # some leave threads behind that take long to end


def measure(samples: int, rounds: int, groups: list[str]) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp())
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    try:
        write(root, samples)
        with servers.files(root, PACE) as (server, *ports), servers.distant(ports[0], 0.02) as far:
            for turn in range(rounds):
                for group, members in remote_sides.sides().items():
                    for name in members if group in groups else ():
                        if not all(find_spec(NEEDS[n]) for n in NEEDS if n in name):
                            continue
                        port, passes = ports[group == NETWORK], 4
                        if group == "first batch":
                            port, passes = far, 6
                        if port is None:
                            continue
                        found[group][name].append(in_process(group, name, port, root, passes))
                print(f"round {turn + 1} of {rounds}", file=sys.stderr)
    finally:
        shutil.rmtree(root)
    total = sum(noise(samples)[1])
    amounts = dict.fromkeys(("shards", NETWORK, "epoch by ranges"), total)
    amounts["ranges"] = total * min(PICKED, samples) // samples
    figures = {
        group: {name: figure(members[name], amounts.get(group)) for name in members}
        for group, members in found.items()
    }
    return {"server": server, "samples": samples, "figures": figures, "rounds": found}


def figure(turns: list[dict[str, Any]], amount: int | None) -> dict[str, float]:
    later = [second for turn in turns for second in turn["later"]]
    found = {
        "cold": statistics.median(turn["cold"] for turn in turns),
        "first": statistics.median(turn["first"] for turn in turns),
        "later": statistics.median(later),
        "best": min(later),
        "processor": statistics.median(s for turn in turns for s in turn["processor"]),
    }
    return found if amount is None else {**found, "MB/s": amount / found["best"] / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--groups", nargs="+", default=list(remote_sides.sides()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure_one(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers, too
    found = measure(options.samples, options.rounds, options.groups)
    print(f"from {found['server']}, {found['samples']} samples; seconds")
    for group, members in found["figures"].items():
        print(
            f"{group:36} {'process':>8} {'first':>8} {'later':>8} {'best':>8} {'cpu':>8} {'MB/s':>8}"
        )
        for name, each in members.items():
            times = " ".join(
                f"{each[t]:8.3f}" for t in ("cold", "first", "later", "best", "processor")
            )
            rate = f"{each['MB/s']:8.0f}" if "MB/s" in each else ""
            print(f"  {name:34} {times} {rate}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
