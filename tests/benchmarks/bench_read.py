"""How fast samples come out of local shards, and are written to them, beside other libraries.

    python tests/benchmarks/bench_read.py [--size 0.1] [--rounds 3] [--kinds tokens] [--json FILE]

Builds each data set in the format of each library, then reads it shuffled. Each side is a process of its
own, bound to one core, or two where it has two workers or threads; in each round it is each one's turn,
while the others wait. In its turn a side opens the data set and reads two epochs: the first maps files
that are in the page cache but not yet in the process, the second finds them mapped. The second is cut
after ``--seconds``, the first if by then not even an eighth of it was read: there is no second then. A
library that is not installed, or that fails, is named.

Reported are medians over all rounds: samples per second from the first one on, of the first epoch and of
the second, in brackets the least and the most of the second; processor time per million samples, of all
processes of a side; milliseconds from opening the data set to the first sample; and the peak of the memory of
the process, mapped files included, and how much of it is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import read_data
import read_peers
import read_round
import read_sides
import read_writers

PACKAGES = (
    "streamplug", "numpy", "torch", "litdata", "mosaicml-streaming", "webdataset", "datasets", "grain",
    "array-record", "lancedb", "pylance",
)  # fmt: skip
TURN_SECONDS = 120
WHAT = ("limit", "samples", "batches", "loader", "access", "writing")
SIDES = [*read_sides.LIMITS, *read_sides.OURS, *read_peers.PEERS]


class Task(NamedTuple):
    """What a process is asked to do again and again: a side, of a data set."""

    kind: str
    what: str
    who: str

    @property
    def side(self) -> Any:
        sides: list[Any] = read_writers.WRITERS if self.what == "writing" else SIDES
        return next(s for s in sides if s.who == self.who and self.what in (*s[:1], "writing"))


def tasks_of(kind: str, only: str) -> Iterator[Task]:
    for side in SIDES:
        if only in side.who and (side.kinds is None or kind in side.kinds):
            yield Task(kind, side.what, side.who)
    for side in read_writers.WRITERS if kind in read_writers.KINDS_WRITTEN else ():
        if only in side.who:
            yield Task(kind, "writing", side.who)


# -- in the process of a side -------------------------------------------------------------


def serve(task: Task, data: Path, samples: int, seconds: float) -> None:
    """Measure a side each time that a line comes, until no more comes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    side, cores = task.side, sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-getattr(side, "cores", 1) :])
    warnings.simplefilter("ignore")
    read_peers.prepare(side.needs)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        if task.what == "writing":
            found = read_writers.measure(side, data / "written", task.kind, samples)
        else:
            found = read_round.measure(side, data, samples, seconds)
        print(json.dumps(found), file=answers, flush=True)
    os._exit(0)  # some leave threads behind that take long to end


# -- in the process that asks ---------------------------------------------------------------


class Process:
    """A process that measures one side when it is told to."""

    def __init__(self, task: Task, options: argparse.Namespace, samples: int) -> None:
        self.task, self.failure = task, ""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until `end`
        command = [sys.executable, __file__, "--serve", *task, "--data", str(options.data)]
        command += ["--samples", str(samples), "--seconds", str(options.seconds)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(command, env=environment(options.data), text=True, **pipes)

    def answer(self) -> str:
        """Return its next line; if there is none, end it and note why."""
        if not self.failure and select.select([self._process.stdout], [], [], TURN_SECONDS)[0]:
            line = self._process.stdout.readline()
            if line:
                return line
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:] or [f"took {TURN_SECONDS} s"]
        self.failure = self.failure or last[0]
        return ""

    def turn(self) -> dict[str, Any] | None:
        if self.failure:
            return None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self.answer()
        return json.loads(line) if line else None

    def end(self) -> None:
        if not self.failure:
            self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()


def environment(data: Path) -> dict[str, str]:
    (scratch := data.parent / "scratch").mkdir(exist_ok=True)
    some = {"TMPDIR": scratch, "HF_HOME": scratch, "LITDATA_CACHE_DIR": scratch / "litdata"}
    more = {"LITDATA_DISABLE_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    return {**os.environ, **more, **{name: str(path) for name, path in some.items()}}


def missing(needs: tuple[str, ...]) -> list[str]:
    return [name for name in needs if find_spec(name.partition(".")[0]) is None]


def build(kind: str, samples: int, data: Path, layouts: set[str]) -> dict[str, str]:
    """Write a data set in some layouts, each in a process of its own; return why some could not be."""
    failures = {}
    for layout in sorted(layouts):
        command = [sys.executable, __file__, "--build", layout, kind]
        command += ["--data", str(data), "--samples", str(samples)]
        done = subprocess.run(
            command, env=environment(data), check=False, capture_output=True, text=True
        )
        if done.returncode:
            failures[layout] = (done.stderr.strip().splitlines() or ["no error"])[-1]
    for path in data.rglob("*"):
        if path.is_file():
            path.read_bytes()  # into the page cache
    return failures


def compare(
    kind: str, samples: int, options: argparse.Namespace
) -> tuple[list[Any], dict[str, str]]:
    """Measure all sides of a data set; return what was found, and who is left out for which reason."""
    tasks, out = [], {}
    for task in tasks_of(kind, options.only):
        if absent := missing(task.side.needs):
            out[f"{kind}, {task.what}: {task.who}"] = f"{', '.join(absent)} not installed"
        else:
            tasks.append(task)
    failed = build(
        kind, samples, options.data, {getattr(task.side, "layout", "mds") for task in tasks}
    )
    for task in tasks:
        if (layout := getattr(task.side, "layout", "mds")) in failed:
            out[f"{kind}, {task.what}: {task.who}"] = failed[layout]
    processes = [
        Process(task, options, samples)
        for task in tasks
        if f"{kind}, {task.what}: {task.who}" not in out
    ]
    found: dict[Task, list[Any]] = {process.task: [] for process in processes}
    try:
        for process in processes:
            process.answer()  # that it is ready
        for number in range(options.rounds):
            for process in processes:
                if (one := process.turn()) is not None:
                    found[process.task].append(one)
            print(f"{kind}: round {number + 1} of {options.rounds}", file=sys.stderr)
    finally:
        for process in processes:
            process.end()
    out |= {f"{kind}, {p.task.what}: {p.task.who}": p.failure for p in processes if p.failure}
    measured = [summary(task, turns) for task, turns in found.items() if turns]
    return sorted(measured, key=lambda one: WHAT.index(one["what"])), out


def summary(task: Task, turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of what a side did in its turns."""
    rates = {
        epoch: [turn[epoch]["rows"] / turn[epoch]["seconds"] for turn in turns if epoch in turn]
        for epoch in ("first", "later")
    }
    # Who does not come to the second epoch has his first one taken for it.
    steady = rates["later"] or rates["first"]
    last = [turn.get("later") or turn["first"] for turn in turns]
    found = {
        **task._asdict(),
        "first": statistics.median(rates["first"]) if rates["first"] else None,
        "rate": statistics.median(steady),
        "least": min(steady),
        "most": max(steady),
        "processor": statistics.median(each["processor"] for each in last) * 1e6,
        "wait": statistics.median(
            [turn["first"]["wait"] for turn in turns if "first" in turn] or [0]
        ),
        "second": bool(rates["later"]),
    }
    return found | {name: max(turn[name] for turn in turns) for name in ("rss", "anonymous")}


# -- report ---------------------------------------------------------------------------------


def machine(packages: Iterable[str]) -> dict[str, Any]:
    """Return on what this was measured, with the versions of some packages."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    cpu = Path("/proc/cpuinfo").read_text().partition("model name")[2].split("\n")[0].strip(" \t:")
    load = os.getloadavg()[0]
    more = {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "load": load}
    return {"python": platform.python_version(), **more, "versions": versions}


def show(found: list[dict[str, Any]]) -> None:
    heads = ["first", "later", "least", "most"]
    more = f"{'CPU s/M':>9}{'ms':>7}{'MB':>6}{'own':>6}"
    print(" " * 46 + "".join(f"{head:>11}" for head in heads) + more)
    group = ("", "")
    for one in found:
        if group != (group := (one["kind"], one["what"])):
            print(f"{one['kind']}, {one['what']}")
        rates = "".join(f"{one[n] or 0:11,.0f}" for n in ("first", "rate", "least", "most"))
        rest = f"{one['processor']:9.2f}{one['wait'] * 1e3:7.0f}{one['rss']:6.0f}{one['anonymous']:6.0f}"
        print(f"  {one['who']:44}{rates}{rest}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found, out, began, before = [], {}, time.time(), machine(PACKAGES)
    for kind in options.kinds:
        samples = max(int(read_data.KINDS[kind][0] * options.size), 2 * read_sides.BATCH)
        root = Path(tempfile.mkdtemp(prefix="streamplug-bench-"))
        try:
            options.data = root / kind
            options.data.mkdir()
            more, why = compare(kind, samples, options)
        finally:
            shutil.rmtree(root)
        found += [{**one, "samples": samples} for one in more]
        out |= why
    return {"machine": before, "seconds": time.time() - began, "figures": found, "left out": out}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=1.0, help="a part of the data sets")
    parser.add_argument("--kinds", nargs="+", choices=read_data.READ, default=list(read_data.READ))
    parser.add_argument("--only", default="", help="sides in whose names this is")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="cut longer epochs here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        layout, kind = options.build
        read_data.LAYOUTS[layout][1](options.data / layout, kind, options.samples)
    elif options.serve:
        serve(Task(*options.serve), options.data, options.samples, options.seconds)
    else:
        found = measure(options)
        show(found["figures"])
        for who, why in found["left out"].items():
            print(f"left out: {who}: {why}")
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
