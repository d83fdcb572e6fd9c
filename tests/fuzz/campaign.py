"""Fuzz every target for a while, guided by coverage, and keep what was found.

Findings are written to ``corpus/TARGET/``, where `test_fuzz.py` tries them with each run of the tests. Inputs
that reached new code are kept in ``--work``, from which the next campaign goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MAX_SECONDS, MAX_MEGABYTES = 10, 2048
"""What one input may take; the process of a target has some 300 MB of libraries."""

PROCESS_SECONDS = 150
"""After which a process is replaced: atheris keeps the results of all comparisons of arrays."""

JSON_SHARE = 0.3
"""How often a value of JSON is replaced, rather than bytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"), help="directory of inputs")
    parser.add_argument("--target", help="only those whose names begin so")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        _fuzz(options.run, options.seconds, options.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, str(HERE.parents[1]))
        os.environ["STREAMPLUG_CACHE_DIR"] = f"{folder}/user"
        from tests.fuzz.targets import find_targets

        names = [n for n in find_targets(Path(folder)) if n.startswith(options.target or "")]
    share = max(options.seconds // len(names), 5)
    found = [name for name in names if not _campaign(name, share, options.work)]
    print(f"{len(names)} targets, {len(found)} with findings: {', '.join(found) or 'none'}")
    sys.exit(bool(found))


def _campaign(name: str, seconds: int, work: Path) -> bool:
    """Fuzz a target in processes of its own; return whether nothing was found."""
    before, start, runs = _findings(name), time.monotonic(), 0
    while (left := seconds - (time.monotonic() - start)) > 1:
        share = int(min(left, PROCESS_SECONDS))
        command = [sys.executable, __file__, "--run", name, "--seconds", str(share)]
        result = subprocess.run(
            [*command, "--work", str(work)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        for line in result.stderr.splitlines():
            if line.startswith("stat::number_of_executed_units"):
                runs += int(line.rpartition(" ")[2])
        if result.returncode and _findings(name) == before:
            print(result.stderr[-3000:])
            return False
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    new = sorted(_findings(name) - before)
    print(
        f"{name}: {runs:,} inputs, {usage.ru_maxrss >> 10} MB at most so far, {len(new)} findings",
        flush=True,
    )
    for path in new:
        print(f"  {path}")
    return not new


def _findings(name: str) -> set[str]:
    return {str(path) for path in (CORPUS / name).glob("*")}


def _fuzz(name: str, seconds: int, work: Path) -> None:
    """Fuzz a target in this process, which ends with it."""
    import atheris

    folder = tempfile.mkdtemp(prefix="streamplug-fuzz-")
    os.environ["STREAMPLUG_CACHE_DIR"] = f"{folder}/user"
    sys.path.insert(0, str(HERE.parents[1]))
    names = {distribution.name.replace("-", "_") for distribution in distributions()}
    plugins = sorted(name for name in names if name.startswith("streamplug"))
    with atheris.instrument_imports(include=[*plugins, "cbor2", "numpy.lib", "tarfile", "zipfile"]):
        from tests.fuzz.json_values import replace_value
        from tests.fuzz.targets import find_targets, is_ours

        target = find_targets(Path(folder) / "data")[name]

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:
            if not is_ours(error):
                _keep(name, data, error)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        changed = replace_value(data, draw) if draw.random() < JSON_SHARE else None
        return atheris.Mutate(data, max_size) if changed is None else changed[:max_size]

    inputs, findings = work / name, CORPUS / name
    inputs.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds:
        (inputs / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    flags = [
        f"-max_total_time={seconds}",
        f"-timeout={MAX_SECONDS}",
        f"-rss_limit_mb={MAX_MEGABYTES}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        "-max_len=65536",
        f"-dict={HERE / 'words.dict'}",
    ]
    atheris.Setup([sys.argv[0], *flags, str(inputs), str(findings)], run, custom_mutator=mutate)
    atheris.Fuzz()


def _keep(name: str, data: bytes, error: Exception) -> None:
    """Keep the smallest input for each place that raises."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "streamplug" in frame.filename] or frames
    place = f"{type(error).__name__}-{Path(ours[-1].filename).stem}-{ours[-1].name}"
    path = CORPUS / name / place
    if not path.exists() or len(data) < path.stat().st_size:
        path.write_bytes(data)
        print(f"{place}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
