"""Run simulated worlds for a while, then look for each planted defect.

python -m tests.world.campaign [--seconds N] [--defect-seconds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BATCH = 20  # worlds in a process: what is dead in them is never freed
MACHINES = 2
_LINE = re.compile(r"seed (\d+): (.*); ([\d,]+) switches, ([\d.]+) simulated seconds, ([\d.]+) s")


def defects() -> list[str]:
    """Return the names of the planted defects, without importing them."""
    tree = ast.parse(Path(__file__).with_name("defects.py").read_text("utf-8"))
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    return [
        f.name.replace("_", " ")
        for f in functions
        if getattr(f.decorator_list[0], "id", "") == "defect"
    ]


def run(seeds: range, *more: str) -> Iterator[tuple[int, str, float, float]]:
    """Yield seed, result, simulated and real seconds of worlds."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=memory, prefix="streamplug-world-") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.world.run", *map(str, seeds), "--folder", folder, *more],
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := _LINE.match(line):
                    yield int(match[1]), match[2], float(match[4]), float(match[5])
                else:
                    print(line, end="")
        finally:
            process.kill()


def search(name: str, seconds: float) -> dict[str, Any]:
    """Return after how many worlds a defect is found, and how."""
    start, worlds = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _, result, _, _ in run(range(worlds + 1, worlds + 1 + BATCH), "--defect", name):
            worlds += 1
            if result != "ok":
                return {
                    "defect": name,
                    "worlds": worlds,
                    "seconds": time.monotonic() - start,
                    "found": result,
                }
    return {"defect": name, "worlds": worlds, "seconds": time.monotonic() - start, "found": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="of worlds without a defect")
    parser.add_argument(
        "--defect-seconds", type=float, default=120, help="at most, for each defect"
    )
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    start, seed, failed, simulated, real = time.monotonic(), options.first, [], 0.0, 0.0
    while time.monotonic() - start < options.seconds:
        for number, result, these, took in run(range(seed, seed + BATCH)):
            simulated, real = simulated + these, real + took
            if result != "ok":
                failed.append(number)
                print(f"seed {number}: {result}", flush=True)
        seed += BATCH
    hours = MACHINES * simulated / 3600
    speed = 60 * hours / max(real, 1)
    print(f"{seed - options.first} worlds, {hours:.1f} hours of machines, {speed:.2f} a minute")
    found = []
    for name in defects() if options.defect_seconds else []:
        found.append(search(name, options.defect_seconds))
        how = found[-1]["found"] or "NOT FOUND"
        print(
            f"{name}: {found[-1]['worlds']} worlds, {found[-1]['seconds']:.1f} s: {how[:120]}",
            flush=True,
        )
    if options.json:
        figures = {
            "worlds": seed - options.first,
            "hours": hours,
            "hours a minute": speed,
        }
        options.json.write_text(
            json.dumps({**figures, "failed": failed, "defects": found}, indent=1) + "\n"
        )
    sys.exit(bool(failed) or any(each["found"] is None for each in found))


if __name__ == "__main__":
    main()
