"""The figures of the first page of the documentation: streamplug beside other libraries, each at its best.

    python tests/benchmarks/bench_landing.py [--rows crops] [--only streamplug] [--json FILE]

Some ten minutes. `landing_sides.py` has the rows. All files are in the page cache. Each measurement is a
process of its own, bound to two cores, while nothing else runs; a server shares these cores.

A library may be used in several ways, with workers or with threads or neither. Each way is tried for a fifth
of ``--seconds``, and the fastest is measured again, for ``--seconds``. After the first batch, the rest of the
first epoch is read, unless it is cut then; if it was not, as many seconds of later epochs are, with what is
between them. The rate is that of the faster of the two; a first epoch of less than a tenth of the time is too
short to count. From the server, each epoch opens the data set anew, with an empty cache, and counts from
there on.

Reported are also the milliseconds from opening the data set to the first batch, what is imported excluded
(from the server the median of all epochs), and the peak of the memory of all processes of a side: that which
several share counts once, and mapped files count while they are mapped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import crop_sides
import read_peers
import servers
from bench_read import build, environment, machine, missing
from landing_sides import ROWS, Row, Side
from read_round import children, epoch
from read_sides import Epochs

PACKAGES = (
    "streamplug", "numpy", "torch", "torchvision", "pillow", "litdata", "mosaicml-streaming", "webdataset",
    "datasets", "spdl-core", "grain", "array-record", "obstore", "aiobotocore", "boto3",
)  # fmt: skip
DISTANCE_SECONDS = 0.02
UNPACED = 1 << 40
LOOK_SECONDS, END_LOOKS = 0.25, 20
TRIAL = 1 / 5
SHORTEST_FIRST = 1 / 10
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


# -- in the process of a side -------------------------------------------------------------


def measure_warm(epochs: Epochs, seconds: float) -> dict[str, Any]:
    """Read the first epoch, then later ones; return samples per second of the faster."""
    began = time.perf_counter()
    items, size = next(epochs)
    first = epoch(items, size, began, seconds, math.inf)
    rates = {}
    if first["seconds"] >= SHORTEST_FIRST * seconds:
        rates["first epoch"] = first["rows"] / first["seconds"]
    if not first["cut"]:  # few can begin anew in the midst of an epoch
        rates["later epochs"], _ = measure_epochs(epochs, seconds)
    which, rate = max(rates.items(), key=lambda one: one[1])
    return {"rate": rate, "epoch": which, "first_batch_ms": first["wait"] * 1e3}


def measure_cold(epochs: Epochs, seconds: float) -> dict[str, Any]:
    rate, waits = measure_epochs(epochs, seconds)
    return {"rate": rate, "epoch": "empty cache", "first_batch_ms": statistics.median(waits) * 1e3}


def measure_epochs(epochs: Epochs, seconds: float) -> tuple[float, list[float]]:
    """Read epochs; return the samples of a second, with what is between them, and the waits for each.

    Raises:
        ValueError: If an epoch has no batch.
    """
    start, rows, waits = time.perf_counter(), 0.0, []
    while (left := seconds - (time.perf_counter() - start)) > 0:
        began = time.perf_counter()
        items, size = next(epochs)
        one = epoch(items, size, began, left - (time.perf_counter() - began), math.inf)
        if not one["rows"]:
            raise ValueError("an epoch has fewer than two batches")
        rows += size + one["rows"]
        waits.append(one["wait"])
    return rows / (time.perf_counter() - start), waits


def serve(options: argparse.Namespace) -> None:
    """Measure a way of a side, and print what was found."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    name, library, way = options.serve
    row = ROWS[name]
    side = next(side for side in row.sides if side.library == library)
    warnings.simplefilter("ignore")
    if "torchvision" in side.needs:
        crop_sides.torchvision_crop()  # before the stand-ins of what mosaicml-streaming imports
    read_peers.prepare(side.needs)
    if row.is_remote:
        found = measure_cold(side.ways[way](options.port), options.seconds)
    else:
        epochs = side.ways[way](options.data / side.layout, options.samples)
        found = measure_warm(epochs, options.seconds)
    print(json.dumps(found), file=answers, flush=True)
    os._exit(0)  # some leave threads behind that take long to end


# -- in the process that asks ---------------------------------------------------------------


class Task(NamedTuple):
    """One way to measure."""

    row: str
    side: Side
    way: str
    data: Path
    samples: int
    port: int


def run(task: Task, seconds: float) -> tuple[dict[str, Any], str]:
    """Measure in a process of its own; return what was found, or why nothing was."""
    command = [sys.executable, __file__, "--serve", task.row, task.side.library, task.way]
    command += ["--data", task.data, "--samples", str(task.samples), "--port", str(task.port)]
    command += ["--seconds", str(seconds)]
    cores = sorted(os.sched_getaffinity(0))[-2:]
    with tempfile.TemporaryFile("w+") as answers, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**environment(task.data), **KEYS, "OMP_NUM_THREADS": "1"},
            stdout=answers,
            stderr=errors,
            start_new_session=True,
        )
        os.sched_setaffinity(process.pid, cores)
        deadline = 60 + 6 * seconds
        try:
            peak = watch_memory(process, deadline)
        finally:
            end_session(process)
        answers.seek(0)
        errors.seek(0)
        if process.returncode == -signal.SIGKILL:
            return {}, f"took more than {deadline:.0f} s, or too much memory"
        if process.returncode:
            last = errors.read().strip().splitlines()[-1:] or [f"ended by {process.returncode}"]
            return {}, last[0]
        return {**json.loads(answers.read()), "memory_mb": peak}, ""


def watch_memory(process: subprocess.Popen[bytes], deadline: float) -> float:
    """Wait for a process, and return the most memory of it and of all that it started, in MB."""
    peak, began = 0.0, time.monotonic()
    while process.poll() is None and time.monotonic() - began < deadline:
        peak = max(peak, sum(map(resident, descendants(str(process.pid)))))
        time.sleep(LOOK_SECONDS)
    return peak


def descendants(pid: str) -> Iterator[str]:
    yield pid
    for child in children(pid):
        yield from descendants(child)


def resident(pid: str) -> float:
    """Return the MB that a process has in memory; of what several share, its part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process, if it runs yet, and the workers that it left behind."""
    if process.poll() is None:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        # Python's resource tracker ignores this signal, and ends when it has removed the shared memory of the
        # others. Until then, mosaicml-streaming in the next process might take that for its own.
        for _ in range(END_LOOKS):
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(LOOK_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def measure_side(task: Task, seconds: float) -> tuple[dict[str, Any], str]:
    """Try all ways of a side, and measure the fastest."""
    trials, failure = {}, ""
    ways = list(task.side.ways)
    for way in ways if len(ways) > 1 else ():
        found, why = run(task._replace(way=way), seconds * TRIAL)
        failure = why or failure
        if found:
            trials[way] = found["rate"]
    if len(ways) > 1 and not trials:
        return {}, failure
    best = max(trials, key=trials.__getitem__) if trials else ways[0]
    found, why = run(task._replace(way=best), seconds)
    if found:
        found["way"] = f"{best}, {found.pop('epoch')}"
        found["tried"] = trials
    return found, why


def measure_row(
    name: str, root: Path, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the data set of a row, and measure its sides; return why some could not be."""
    row, measured, out = ROWS[name], {}, {}
    sides = [side for side in row.sides if options.only in side.library]
    out |= {
        s.library: f"not installed: {', '.join(missing(s.needs))}"
        for s in sides
        if missing(s.needs)
    }
    sides = [side for side in sides if side.library not in out]
    samples = samples_of(row, options.size)
    data = root / "bench" / row.kind  # the server's bucket is the folder above
    data.mkdir(parents=True, exist_ok=True)
    new = {side.layout for side in sides if not (data / side.layout).exists()}
    failed = build(row.kind, samples, data, new)
    print(f"{row.title} ({row.unit})", flush=True)
    with serving(row, root) as (server, port):
        for side in sides:
            found, why = {}, failed.get(side.layout, "")
            if not why:
                task = Task(name, side, "", data, samples, port)
                found, why = measure_side(task, options.seconds)
            if found:
                measured[side.library] = found
                print_side(side.library, found)
            else:
                out[side.library] = why
    for library, why in out.items():
        print(f"  left out: {library}: {why}")
    about = {"title": row.title, "unit": row.unit, "samples": samples, "batch": row.batch}
    return {**about, "server": server, "sides": measured}, out


def samples_of(row: Row, size: float) -> int:
    multiple = 2 * row.batch
    return max(int(row.samples * size) // multiple, 2) * multiple


@contextmanager
def serving(row: Row, root: Path) -> Iterator[tuple[str | None, int]]:
    """Yield what serves the files of a remote row, and at which port."""
    if not row.is_remote:
        yield None, 0
        return
    with (
        servers.files(root, UNPACED) as (server, port, _),
        servers.distant(port, DISTANCE_SECONDS) as far,
    ):
        yield server, far


def print_side(library: str, found: dict[str, Any]) -> None:
    figures = (
        f"{found['rate']:11,.0f}{found['first_batch_ms']:8,.0f} ms{found['memory_mb']:8,.0f} MB"
    )
    print(f"  {library:24}{figures}  {found['way']}", flush=True)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    before, began = machine(PACKAGES), time.time()
    rows, out = {}, {}
    root = Path(tempfile.mkdtemp(prefix="streamplug-bench-"))
    try:
        for name in options.rows:
            rows[name], why = measure_row(name, root, options)
            out |= {f"{name}, {library}": reason for library, reason in why.items()}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": before,
        "seconds": time.time() - began,
        "seconds of a pass": options.seconds,
        "rows": rows,
        "left out": out,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--only", default="", help="libraries in whose names this is")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a pass")
    parser.add_argument("--size", type=float, default=1.0, help="a part of the data sets")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers, too
    found = measure(options)
    print(f"{found['seconds']:,.0f} s, load {found['machine']['load']:.1f} at the beginning")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
