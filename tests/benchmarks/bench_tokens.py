"""How fast shuffled token rows come out of streamplug and of other libraries.

Builds one set of random uint16 tokens in the format of each library, then reads each of them in a
process of its own, bound to one core, several rounds, the libraries in turn. Every process reads
two epochs: the first maps files that are in the page cache but not yet in the process, the second
finds them mapped. Run it as ``tox -e bench``, or with fewer samples as
``tox -e bench -- --samples 20000``. A library that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256
ROWS_AT_ONCE = 1024
SHARD_BYTES = 1 << 26


def token_rows(samples: int, length: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for start in range(0, samples, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, samples - start)
        yield rng.integers(0, 1 << 16, (count, length), np.uint16)


# -- building ---------------------------------------------------------------------------


def build_mds(folder: Path, samples: int, length: int) -> None:
    from streamplug import MDSWriter

    columns = {"tokens": f"ndarray:uint16:{length}"}
    with MDSWriter(columns=columns, out=folder, size_limit=SHARD_BYTES) as writer:
        for rows in token_rows(samples, length):
            writer.write_batch({"tokens": rows})


def rows_of_part(length: int, samples: int) -> Iterator[np.ndarray]:
    for rows in token_rows(samples, length):
        yield from rows


def build_litdata(folder: Path, samples: int, length: int) -> None:
    import litdata

    litdata.optimize(
        fn=partial(rows_of_part, length),
        inputs=[samples],
        output_dir=str(folder),
        chunk_bytes=SHARD_BYTES,
        item_loader=litdata.TokensLoader(),
        num_workers=1,
        verbose=False,
    )


# -- reading ------------------------------------------------------------------------------
# Each yields, for every epoch, an iterator over how many rows came at once.

Epochs = Iterator[Iterator[int]]


def numpy_gather(data: Path, length: int) -> Epochs:
    """Rows of the mapped MDS shards in random order: what no reader of them can beat."""
    shards = []
    for path in sorted((data / "mds").glob("shard.*.mds")):
        mapped = np.memmap(path, np.uint8, mode="r")
        samples, first = mapped[:8].view("<u4").tolist()
        # As bytes: numpy would copy the whole of an array of tokens that begins at an odd place.
        shards.append(mapped[first:].reshape(samples, 2 * length))
    ends = np.cumsum([len(shard) for shard in shards])
    rng = np.random.default_rng(1)

    def epoch() -> Iterator[int]:
        order = rng.permutation(ends[-1])
        for start in range(0, len(order), ROWS_AT_ONCE):
            ids = order[start : start + ROWS_AT_ONCE]
            rows = np.empty((len(ids), 2 * length), np.uint8)
            # All of a shard in one call, still at random within it.
            shard_of = np.searchsorted(ends, ids, side="right")
            ids = ids[np.argsort(shard_of, kind="stable")]
            bounds = [0, *np.cumsum(np.bincount(shard_of, minlength=len(shards)))]
            for shard, end, (begin, stop) in zip(shards, ends, pairwise(bounds)):
                local = ids[begin:stop] - (end - len(shard))
                np.take(shard, local, axis=0, out=rows[begin:stop], mode="clip")
            yield len(rows.view("<u2"))

    while True:
        yield epoch()


def ours(data: Path) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(local=str(data / "mds"), batch_size=BATCH, shuffle=True)


def ours_by_batches(data: Path, length: int) -> Epochs:
    dataset = ours(data)
    while True:
        yield (len(batch["tokens"]) for batch in dataset.batches())


def ours_by_samples(data: Path, length: int) -> Epochs:
    dataset = ours(data)
    while True:
        yield (1 for _ in dataset)


def litdata_set(data: Path, length: int) -> Any:
    import litdata

    loader = litdata.TokensLoader(block_size=length)
    return litdata.StreamingDataset(str(data / "litdata"), item_loader=loader, shuffle=True)


def litdata_by_samples(data: Path, length: int) -> Epochs:
    dataset = litdata_set(data, length)
    while True:
        yield (1 for _ in dataset)


def litdata_by_loader(data: Path, length: int) -> Epochs:
    import litdata

    dataset = litdata_set(data, length)
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    while True:
        yield (len(batch) for batch in loader)


def mosaic_by_samples(data: Path, length: int) -> Epochs:
    runpy.run_path(str(Path(__file__).parents[1] / "peers" / "stubs.py"))["install"]()
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(data / "mds"), batch_size=BATCH, shuffle=True)
    while True:
        yield (1 for _ in dataset)


CONTENDERS: dict[str, tuple[str, Callable[[Path, int], Epochs]]] = {
    "numpy gather": ("numpy", numpy_gather),
    "streamplug, batches(256)": ("streamplug", ours_by_batches),
    "streamplug, samples": ("streamplug", ours_by_samples),
    "litdata, samples": ("litdata", litdata_by_samples),
    "litdata, loader of 256": ("litdata", litdata_by_loader),
    "mosaicml-streaming, samples": ("streaming", mosaic_by_samples),
}
BASELINES = ("litdata, samples", "mosaicml-streaming, samples")


def measure(name: str, arguments: argparse.Namespace) -> list[float]:
    """Return the rows per second of the first epoch and, if that ended in time, of the second."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rates = []
    for epoch in islice(CONTENDERS[name][1](arguments.data, arguments.length), 2):
        rows, begin = 0, time.perf_counter()
        for count in epoch:
            rows += count
            if time.perf_counter() - begin > arguments.seconds:
                return [*rates, rows / (time.perf_counter() - begin)]
        rates.append(rows / (time.perf_counter() - begin))
        if rows < arguments.samples:
            sys.exit(f"{name} gave {rows} of {arguments.samples} samples")
    return rates


# -- the command ----------------------------------------------------------------------------


def in_process(arguments: argparse.Namespace, **task: str) -> str:
    """Run a part of this script in a process of its own and return what it printed last."""
    command = [sys.executable, __file__, "--data", str(arguments.data)]
    for name in ("samples", "length", "seconds"):
        command += [f"--{name}", str(getattr(arguments, name))]
    for name, value in task.items():
        command += [f"--{name}", value]
    (scratch := arguments.data / "scratch").mkdir(exist_ok=True)
    env = {
        **os.environ,
        "TMPDIR": str(scratch),  # some leave files there
        "LITDATA_CACHE_DIR": str(arguments.data / "cache"),
        "LITDATA_DISABLE_VERSION_CHECK": "1",
    }
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{task} failed:\n{done.stderr}")
    return done.stdout.strip().rpartition("\n")[2]


def compare(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    here = {name: one for name, one in CONTENDERS.items() if find_spec(one[0])}
    for name, (package, _) in CONTENDERS.items():
        if name not in here:
            print(f"{name}: {package} is not installed")
    for layout in ["mds", "litdata"] if find_spec("litdata") else ["mds"]:
        in_process(arguments, build=layout)
    for path in arguments.data.rglob("*"):
        if path.is_file():
            path.read_bytes()  # into the page cache
    rates: dict[str, list[list[float]]] = defaultdict(list)
    for number in range(arguments.rounds):
        for name in here:
            rates[name].append(json.loads(in_process(arguments, measure=name)))
            print(f"round {number + 1}, {name}: {[round(rate) for rate in rates[name][-1]]}")
    return {
        name: {
            epoch: statistics.median(values)
            for epoch, values in (
                ("first", [rate[0] for rate in found]),
                ("second", [rate[1] for rate in found if len(rate) > 1]),
            )
            if values
        }
        for name, found in rates.items()
    }


def table(medians: dict[str, dict[str, float]]) -> Iterator[str]:
    baselines = [name for name in BASELINES if name in medians]
    heads = ["samples/s (median)", "first epoch", "second epoch", *(f"× {n}" for n in baselines)]
    yield f"| {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for name, found in medians.items():
        best = [max(found.values()) / max(medians[other].values()) for other in baselines]
        rates = [f"{found[epoch]:,.0f}" if epoch in found else "–" for epoch in ("first", "second")]
        yield f"| {name} | " + " | ".join([*rates, *(f"{ratio:.2f}" for ratio in best)]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=2048, help="tokens per sample")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="cut longer epochs here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the medians there")
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", choices=["mds", "litdata"], help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build = {"mds": build_mds, "litdata": build_litdata}[arguments.build]
        build(arguments.data / arguments.build, arguments.samples, arguments.length)
    elif arguments.measure:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(arguments.measure, arguments)))
    else:
        with tempfile.TemporaryDirectory(prefix="streamplug-bench-") as folder:
            arguments.data = Path(folder)
            medians = compare(arguments)
        print("\n" + "\n".join(table(medians)))
        if arguments.json:
            arguments.json.write_text(json.dumps(medians, indent=2) + "\n")


if __name__ == "__main__":
    main()
