"""Processes that are killed in the midst of what they do: the next one reads everything, and cleans up."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

from streamplug.index.hashes import new_hash

WHOLE = bool(os.environ.get("STREAMPLUG_TEST_FAULTS"))
SHARDS = 12
SIZE = 16 * SHARDS - 5
ROOM = 4  # shards
PACE = 0.04  # seconds that a body takes
AIMS = ("download", "decompression", "eviction", "admission")
LINES = {"decompression": 25, "eviction": 60, "admission": 30}


def aim_at(moment: str, draw: random.Random) -> tuple[str, float]:
    """Return a moment, and after how many seconds or lines of it to die."""
    if moment == "download":
        return moment, draw.uniform(0.0, PACE)
    return moment, draw.randint(1, LINES[moment])


def doing(journal: Path) -> set[str]:
    """Return what a process was in the midst of."""
    under_way: Counter[str] = Counter()
    for line in journal.read_text().splitlines():
        if line[0] in "+-":
            name = line[1:].split(" ")[0]
            under_way[name] += 1 if line[0] == "+" else -1
    return {name for name, count in under_way.items() if count > 0}


def check_used(near: Path) -> bool:
    """Check that what the cache takes itself to hold is no less than what it holds.

    Returns:
        Whether it says so: what does not fit its list of files is worked out anew.
    """
    state = near / ".streamplug"
    names = set()
    for line in (state / "files").read_text().splitlines() if (state / "files").exists() else ():
        try:
            names.add(json.loads(line))
        except ValueError:
            continue  # its writer died
    try:
        listed, used = map(int, (state / "used").read_text().split())
    except (FileNotFoundError, ValueError):
        return False
    if listed != (state / "files").stat().st_size:
        return False
    truth = sum((near / name).stat().st_size for name in names if (near / name).exists())
    assert used >= truth
    return True


def check_files(far: Path, near: Path, limit: int) -> None:
    """Check that a cache that nobody uses holds whole files only, all listed, within its limit."""
    assert list((near / ".streamplug" / "tmp").iterdir()) == []
    listed = {
        json.loads(line) for line in (near / ".streamplug" / "files").read_text().splitlines()
    }
    shards = json.loads((far / "index.json").read_text())["shards"]
    files = [shard[part] for shard in shards for part in ("raw_data", "zip_data")]
    digests = {file["basename"]: file["hashes"]["xxh64"] for file in files}
    found = list(near.glob("shard*"))
    for path in found:
        digest = new_hash("xxh64")
        digest.update(path.read_bytes())
        assert digest.hexdigest() == digests[path.name], path
        assert path.name in listed
    assert sum(path.stat().st_size for path in found) <= limit


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
@pytest.mark.timeout(3600 if WHOLE else 120)
def test_whoever_comes_after_a_killed_process_finds_nothing_amiss(
    tmp_path, write, faulty, processes, figures
):
    far, near = tmp_path / "far", tmp_path / "near"
    limit = ROOM * write(far, SHARDS, compression="gz", hashes=["xxh64"])
    server = faulty("--root", far, "--pace", PACE)
    draw, began = random.Random(11), time.monotonic()
    common = {"remote": server.url, "local": str(near), "limit": limit, "size": SIZE, "leash": 100}
    aimed, hit, left, known = Counter(), Counter(), 0, 0
    turns = cycle((*AIMS, None, None))
    kills, rounds = 200 if WHOLE else 8, 0
    while sum(aimed.values()) < kills:
        moment, rounds = next(turns), rounds + 1
        task = {**common, "endless": True, "keep_zip": rounds % 2 == 0}
        journals = [tmp_path / f"journal-{rounds}-{n}" for n in range(1 if moment else 2)]
        victims = [
            processes(
                "victim.py",
                **task,
                seed=2 * rounds + n,
                journal=str(journal),
                aim=aim_at(moment, draw) if moment else None,
            )
            for n, journal in enumerate(journals)
        ]
        if moment is None:
            wait_for(journals)
            time.sleep(draw.uniform(0.0, 0.5))
            for victim in victims:
                victim.kill()
        for victim, journal in zip(victims, journals):
            victim.join(100)
            assert victim.exitcode == -signal.SIGKILL
            was_doing = doing(journal)
            hit.update(was_doing or {"something else"})
            assert moment is None or moment in was_doing
            aimed[moment or "any"] += 1
        left += len(list((near / ".streamplug" / "tmp").glob("*")))
        known += check_used(near)
        after = processes(
            "victim.py", **task | {"endless": False}, seed=rounds, journal=str(tmp_path / "after")
        )
        after.join(100)
        assert after.exitcode == 0, (moment, rounds)
        check_files(far, near, limit)
        assert check_used(near)
    assert set(AIMS) <= set(hit)
    assert left > 0
    if figures is not None:
        figures["kills"] = {
            "kills": sum(aimed.values()),
            "aimed": aimed,
            "hit": hit,
            "left": left,
            "used_known": known,
            "starts": rounds,
            "samples": rounds * SIZE,
            "seconds": round(time.monotonic() - began),
        }


def wait_for(journals: list[Path]) -> None:
    end = time.monotonic() + 60
    while not all(path.exists() and "begun" in path.read_text() for path in journals):
        assert time.monotonic() < end
        time.sleep(0.01)
