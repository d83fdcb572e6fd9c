"""Data sets in a bucket that are opened and dropped again and again leave nothing in their process.

With STREAMPLUG_TEST_SOAK in the environment a thousand are opened, else a few.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from streamplug import MDSWriter

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
TIMES = 1000 if SOAK else 12
WARM = 30 if SOAK else 8
"""Opened before anything is counted: imports, pools and arenas grow at first."""

PROGRAM = """
import gc, json, os, sys, threading, time
from pathlib import Path
from streamplug.dataset import StreamingDataset

url, endpoint, near, warm, times = *sys.argv[1:4], *map(int, sys.argv[4:])
wishes = {"local": near} if near else {"access": "range"}

def use(number):
    dataset = StreamingDataset(
        remote=url, storage_options={"endpoint_url": endpoint}, batch_size=4, shuffle=True,
        shuffle_seed=number, **wishes,
    )
    batches = dataset.batches()
    assert len(next(batches)["n"]) == 4
    assert dataset[number % 60]["n"] == number % 60
    return dataset, batches  # left in the middle of an epoch

def sockets():
    names = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sum("socket:" in name for name in names)

def held():
    end = time.monotonic() + 20
    while True:  # connections that were dropped close on the loop's own time
        gc.collect()
        threads = sorted(t.name for t in threading.enumerate() if t.name.startswith("streamplug"))
        if (not threads and sockets() <= 4) or time.monotonic() > end:
            break
        time.sleep(0.02)
    return {
        "threads": threads,
        "all threads": threading.active_count(),
        "sockets": sockets(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
    }

for number in range(warm):
    use(number)
before = held()
for number in range(times):
    use(number)
print(json.dumps([before, held()]))
"""


@pytest.fixture
def written(bucket, client, tmp_path):
    with MDSWriter(
        out=tmp_path / "set", columns={"n": "int", "b": "bytes"}, size_limit=12_000
    ) as out:
        for n in range(60):
            out.write({"n": n, "b": bytes(1000)})
    for path in (tmp_path / "set").iterdir():
        client.upload_file(str(path), bucket, f"set/{path.name}")
    return f"s3://{bucket}/set"


@pytest.mark.timeout(3600 if SOAK else 120)
@pytest.mark.parametrize("kind", ["cache", "range"])
def test_opening_a_data_set_often_leaks_nothing(written, endpoint, tmp_path, kind):
    near = str(tmp_path / "near") if kind == "cache" else ""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, written, endpoint, near, str(WARM), str(TIMES)],
        capture_output=True, text=True, timeout=3500 if SOAK else 110, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert after["threads"] == []
    assert after["all threads"] <= before["all threads"] + 1
    assert after["sockets"] <= before["sockets"] + 2, (before, after)
    assert after["descriptors"] <= before["descriptors"] + 4, (before, after)
    # A client of botocore takes some megabytes: those that stayed would be seen.
    assert after["memory"] - before["memory"] < 12_000_000 + 20_000 * TIMES, (before, after)
