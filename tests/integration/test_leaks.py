"""Data sets that are opened and dropped again and again, or many at once, leave nothing in their process.

With STREAMPLUG_TEST_SOAK in the environment a thousand are opened, else a few.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter

pytest.importorskip("aiohttp")

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
TIMES = 1000 if SOAK else 24
WARM = 30 if SOAK else 8
"""Opened before anything is counted: imports, pools and arenas grow at first."""

PROGRAM = """
import gc, json, os, sys, threading, time
from pathlib import Path
from streamplug.dataset import StreamingDataset

url, near, kind, warm, times = *sys.argv[1:4], *map(int, sys.argv[4:])
wishes = {"access": "range"} if kind == "range" else {"local": near}
if kind == "limit":
    wishes["cache_limit"] = 60_000

def use(number):
    dataset = StreamingDataset(remote=url, batch_size=4, shuffle=True, shuffle_seed=number, **wishes)
    batches = iter(dataset.batches())
    for _ in range(3):
        assert len(next(batches)["n"]) == 4
    assert dataset[number % 60]["n"] == number % 60
    return dataset, batches  # left in the middle of an epoch

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def found():
    end = time.monotonic() + 20
    while True:  # connections that were dropped close on the loop's own time
        gc.collect()
        threads = sorted(t.name for t in threading.enumerate() if t.name.startswith("streamplug"))
        if not threads or time.monotonic() > end:
            break
        time.sleep(0.02)
    held = sys.maxsize
    while held > (held := descriptors()) and time.monotonic() < end:
        time.sleep(0.3)
    return {
        "descriptors": held,
        "threads": threads,
        "all threads": len(list(threading.enumerate())),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
        "shared": sorted(p for p in os.listdir("/dev/shm") if str(os.getpid()) in p.split("_")),
    }

if kind == "many":
    use(0)
    before = found()
    held = [use(number) for number in range(times)]
    held.clear()
else:
    for number in range(warm):
        use(number)
    before = found()
    for number in range(times):
        use(number)
print(json.dumps([before, found()]))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("www")
    with MDSWriter(out=root / "set", columns={"n": "int", "b": "bytes"}, size_limit=12_000) as out:
        for n in range(60):
            out.write({"n": n, "b": bytes(1000)})
    return root


def measured(written, tmp_path, kind, warm, times):
    """Open data sets in a process of their own; returns what it holds before and after."""
    with serving(written) as server:
        arguments = [f"{server.url}/set", str(tmp_path / "near"), kind, str(warm), str(times)]
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", PROGRAM, *arguments],
            capture_output=True, text=True, timeout=1500 if SOAK else 100, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(before, after, times):
    assert after["threads"] == []
    assert after["descriptors"] <= before["descriptors"] + 4, (before, after)
    assert after["all threads"] <= before["all threads"] + 1
    assert after["shared"] == []
    assert after["maps"] <= before["maps"] + 60
    # What every one of them left would be seen: a data set of this size takes some 100 kB.
    assert after["memory"] - before["memory"] < 6_000_000 + 8_000 * times, (before, after)


@pytest.mark.timeout(1600)
@pytest.mark.parametrize("kind", ["cache", "limit", "range"])
def test_opening_a_data_set_often_leaks_nothing(written, tmp_path, kind):
    before, after = measured(written, tmp_path, kind, WARM, TIMES)
    check(before, after, TIMES)


def test_forty_data_sets_at_once_leave_nothing(written, tmp_path):
    before, after = measured(written, tmp_path, "many", 0, 40)
    check(before, after, 400)  # the first ones are not warmed up here
