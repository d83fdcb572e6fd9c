"""Run simulated worlds from their seeds, perhaps with a planted defect.

    python -m tests.world.run SEED [SEED ...] [--defect NAME]

Each runs to its end, or prints what does not hold; a seed gives the same world each time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

if os.environ.get("PYTHONHASHSEED") != "0":  # sets are in the order of their hashes
    command = [sys.executable, "-m", "tests.world.run", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})

from tests.world import kernel

kernel.install()

from tests.world.cluster import Job  # noqa: E402
from tests.world.defects import DEFECTS  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--defect", choices=DEFECTS)
    parser.add_argument(
        "--folder", type=Path, help="an existing one for files; the caller removes it"
    )
    options = parser.parse_args()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = options.folder or Path(tempfile.mkdtemp(prefix="streamplug-world-", dir=memory))
    far, stop = folder / "far", len(options.seeds) == 1
    try:
        if not far.exists():
            subprocess.run([sys.executable, "-m", "tests.world.data", str(far)], check=True)
        if options.defect:
            DEFECTS[options.defect]()
        failed = [
            seed for seed in options.seeds if not run(seed, folder / str(seed), far, stop=stop)
        ]
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    os._exit(bool(failed))  # dead threads must not be unwound


def run(seed: int, folder: Path, far: Path, *, stop: bool) -> bool:
    """Run a world; print its figures, or why it failed."""
    start, job = kernel.real_time(), Job(seed, folder, far)
    why = "ok"
    try:
        job.run()
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        if stop:
            traceback.print_exc()
    seconds, real = job.kernel.now - kernel.START, kernel.real_time() - start
    times = f"{seconds:.1f} simulated seconds, {real:.2f} s"
    print(f"seed {seed}: {why}; {job.kernel.steps:,} switches, {times}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return why == "ok"


if __name__ == "__main__":
    main()
