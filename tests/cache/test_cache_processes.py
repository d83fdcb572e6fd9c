"""Many processes that read through one small cache at once."""

from __future__ import annotations

import random
import time
from itertools import chain

import pytest

from tests.start_methods import METHODS, SOAK

PER_SHARD, PROCESSES = 8, 8


def ids_of(tmp_path, ranks):
    return [list(map(int, (tmp_path / f"out{rank}").read_text().split())) for rank in range(ranks)]


@pytest.mark.parametrize("shards", [64 if SOAK else 24])
@pytest.mark.parametrize("method", METHODS)
def test_eight_processes_share_a_cache_of_three_shards(
    tmp_path, serve, write, readers, watch, ends_well, check_cache, method, shards
):
    far, near = tmp_path / "far", tmp_path / "near"
    size = write(far, shards, hashes=["sha1"])
    server = serve(far)
    with watch(near) as watched:
        processes = [
            readers(
                method,
                remote=server.url,
                local=str(near),
                limit=3 * size,
                ranks=PROCESSES,
                rank=rank,
                out=str(tmp_path / f"out{rank}"),
            )
            for rank in range(PROCESSES)
        ]
        ends_well(processes)
    seen = ids_of(tmp_path, PROCESSES)
    assert sorted(chain.from_iterable(seen)) == list(range(shards * PER_SHARD))
    # Each process has one thread that fetches ahead, and its own.
    assert watched.peak <= (3 + 2 * PROCESSES) * size
    assert 0 < sum(path.stat().st_size for path in near.glob("shard*")) <= 3 * size
    check_cache(far, near)
    assert sum(server.gets[f"shard.{n:05d}.mds"] > 0 for n in range(shards)) == shards


def test_processes_without_a_limit_download_each_shard_once(
    tmp_path, serve, write, readers, ends_well, check_cache
):
    far, near = tmp_path / "far", tmp_path / "near"
    write(far, 16, hashes=["sha1"], compression="gz")
    server = serve(far)
    ends_well(
        [
            readers("fork", remote=server.url, local=str(near), ranks=4, rank=rank, epochs=2)
            for rank in range(4)
        ]
    )
    shards = {name: count for name, count in server.gets.items() if name.startswith("shard")}
    assert set(shards.values()) == {1}
    assert len(shards) == 16
    check_cache(far, near)


# Where a process dies: before or after which call of what.
DEATHS = [
    ("streamplug_fsspec.http:HttpStorage.download", 2, "before"),
    ("streamplug_fsspec.http:HttpStorage.download", 2, "after"),
    ("streamplug.cache.store:verify_file", 3, "before"),
    ("streamplug.builtin.compressions.gzip:Gzip.decompress_stream", 2, "before"),
    ("streamplug.builtin.compressions.gzip:Gzip.decompress_stream", 2, "after"),
    ("streamplug.cache.quota:CacheQuota._append", 2, "before"),
    ("streamplug.cache.quota:CacheQuota._append", 2, "after"),
    ("streamplug.cache.quota:CacheQuota._place", 3, "after"),
    ("streamplug.cache.quota:CacheQuota._write_used", 5, "before"),
    ("streamplug.cache.quota:CacheQuota._evict", 2, "before"),
    ("streamplug.cache.quota:CacheQuota._write_list", 2, "before"),
    ("streamplug.cache.quota:CacheQuota._write_list", 2, "after"),
    ("streamplug.cache.quota:reserve_bytes", 2, "after"),
]


def survives(tmp_path, far, near, server, limit, readers, ends_well, check_cache, method, **task):
    """Read everything after a death: it works, and leaves nothing of the dead behind."""
    task = {"remote": server.url, "local": str(near), "limit": limit, "shuffle": False, **task}
    ends_well([readers(method, **task, out=str(tmp_path / "out0"))])
    seen = ids_of(tmp_path, 1)[0]
    assert sorted(seen) == list(range(16 * PER_SHARD))
    check_cache(far, near)
    assert sum(path.stat().st_size for path in near.glob("shard*")) <= limit


@pytest.mark.parametrize("keep_zip", [False, True])
def test_a_process_may_die_at_any_point(
    tmp_path, serve, write, readers, ends_well, check_cache, keep_zip
):
    far, near = tmp_path / "far", tmp_path / "near"
    limit = 4 * write(far, 16, hashes=["sha1"], compression="gz")
    server = serve(far)
    for death in DEATHS if SOAK else DEATHS[keep_zip::2]:
        task = {"remote": server.url, "local": str(near), "limit": limit, "keep_zip": keep_zip}
        process = readers("forkserver", **task, die=death)
        process.join(60)
        assert process.exitcode == -9, death
        survives(
            tmp_path, far, near, server, limit, readers, ends_well, check_cache, "forkserver",
            keep_zip=keep_zip,
        )  # fmt: skip


@pytest.mark.timeout(3000 if SOAK else 300)
def test_processes_may_be_killed_at_any_time(
    tmp_path, serve, write, readers, ends_well, check_cache
):
    far, near = tmp_path / "far", tmp_path / "near"
    limit = 4 * write(far, 16, hashes=["sha1"], compression="gz")
    server = serve(far)
    draw = random.Random(7)
    for number in range(200 if SOAK else 7):
        task = {"remote": server.url, "local": str(near), "limit": limit, "epochs": 1000}
        both = [readers("forkserver", **task, seed=2 * number + k) for k in range(2)]
        time.sleep(draw.uniform(0.1, 0.7))
        for process in both:
            process.kill()
            process.join(20)
            assert process.exitcode == -9
        survives(tmp_path, far, near, server, limit, readers, ends_well, check_cache, "forkserver")
