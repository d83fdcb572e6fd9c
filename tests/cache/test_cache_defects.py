"""What readers of data sets are known to suffer from, elsewhere."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, NotFound, StorageError, Transient
from streamplug.stream import Stream
from tests.start_methods import METHODS

FIRST, THIRD = "shard.00000.mds", "shard.00002.mds"
SHARED_MEMORY = Path("/dev/shm")


def ids(dataset):
    return [sample["id"] for sample in dataset]


@pytest.fixture
def torch_classes():
    """Return the data set for torch, and torch's loader."""
    data = pytest.importorskip("torch.utils.data")
    from streamplug.adapters.torch import StreamingDataset as TorchDataset

    return TorchDataset, data.DataLoader


@pytest.fixture
def far(tmp_path, write, no_waiting):
    write(tmp_path / "far", hashes=["sha1"])
    return tmp_path / "far"


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_missing_shard_is_an_error_with_any_number_of_workers(
    tmp_path, far, workers, torch_classes
):
    (far / THIRD).unlink()
    torch_dataset, loader_class = torch_classes
    dataset = torch_dataset(remote=str(far), local=str(tmp_path / "near"), batch_size=4)
    loader = loader_class(
        dataset,
        batch_size=4,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        timeout=60 if workers else 0,
    )
    for _ in range(2):
        batches = iter(loader)
        with pytest.raises(StorageError, match="does not exist"):  # noqa: PT012
            for _ in range(9):  # there are 8, and the end must not come before them
                next(batches)
        if workers:
            batches._shutdown_workers()  # when they are collected, torch waits seconds for each


def test_the_second_run_without_a_local_directory_works(tmp_path, far, serve, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    server = serve(far)
    for _ in range(3):
        assert ids(StreamingDataset(remote=server.url)) == list(range(32))
    assert server.gets[FIRST] == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_a_download_is_tried_once_more_than_it_is_repeated(tmp_path, far, serve, retries):
    server = serve(far)
    dataset = StreamingDataset(
        remote=server.url,
        local=str(tmp_path / "near"),
        download_retry=retries,
        download_patience=0,
    )
    server.hooks[FIRST] = lambda handler: handler.send_error(503) or True
    with pytest.raises(Transient, match=f"{FIRST}: the server answered 503"):
        dataset[0]
    assert server.gets[FIRST] == retries + 1
    server.hooks.clear()
    assert dataset[0]["id"] == 0
    assert ids(dataset) == list(range(32))


def descriptors():
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def soon(holds):
    """Say whether something comes to hold."""
    for _ in range(100):
        if holds():
            return True
        time.sleep(0.1)
    return False


def shared():
    # Not what other tests, which run meanwhile, have: semaphores, tensors and simulated worlds.
    others = ("sem.", "torch_", "streamplug-world-")
    return {path.name for path in SHARED_MEMORY.iterdir() if not path.name.startswith(others)}


@pytest.mark.parametrize("torch", [False, True])
def test_data_sets_leave_no_descriptors_and_no_shared_memory(tmp_path, far, torch, request):
    kind = request.getfixturevalue("torch_classes")[0] if torch else StreamingDataset

    def use(number):
        dataset = kind(
            remote=str(far),
            local=str(tmp_path / f"near{number % 3}"),
            cache_limit="1mb",
            batch_size=4,
        )
        assert ids(dataset) == list(range(32))

    use(0)
    before, names = descriptors(), shared()
    for number in range(40):
        use(number)
    assert soon(
        lambda: descriptors() <= before
    )  # threads that are about to end may still hold some
    assert soon(lambda: shared() <= names)


def test_opening_and_closing_shards_leaks_nothing(tmp_path, write):
    size = write(tmp_path / "far", 20)
    dataset = StreamingDataset(
        remote=str(tmp_path / "far"), local=str(tmp_path / "near"), cache_limit=4 * size
    )
    assert dataset[0]["id"] == 0
    before, maps = descriptors(), len(Path("/proc/self/maps").read_text().splitlines())
    soak = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
    for number in range(5000 if soak else 300):
        assert dataset[number % 20 * 8]["id"] == number % 20 * 8
    assert soon(lambda: descriptors() <= before)
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= maps + 20
    assert len(list((tmp_path / "near").glob("shard*"))) <= 4
    assert list((tmp_path / "near" / ".streamplug" / "tmp").iterdir()) == []
    names = (tmp_path / "near" / ".streamplug" / "files").read_text().splitlines()
    assert len(names) <= 8  # the list does not grow for ever


def test_a_group_that_is_killed_leaves_nothing_that_blocks(tmp_path, far):
    pytest.importorskip("torch")
    program = f"""
        from torch.utils.data import DataLoader
        from streamplug.adapters.torch import StreamingDataset
        dataset = StreamingDataset(
            remote={str(far)!r}, local={str(tmp_path / "near")!r}, batch_size=4, cache_limit=30_000,
            shuffle=True,
        )
        loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="fork")
        while True:
            for batch in loader:
                print(len(batch["id"]), flush=True)
    """
    names = shared()
    group = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert group.stdout is not None
    for _ in range(20):
        assert group.stdout.readline()
    os.killpg(group.pid, signal.SIGKILL)
    group.wait(20)
    group.stdout.close()
    assert soon(lambda: shared() <= names)
    # A lock that did not die with its holder would last for longer than a test may take.
    dataset = StreamingDataset(remote=str(far), local=str(tmp_path / "near"), cache_limit=30_000)
    assert ids(dataset) == list(range(32))
    assert list((tmp_path / "near" / ".streamplug" / "tmp").iterdir()) == []


def test_a_limit_never_removes_the_only_copy(tmp_path, far, write):
    near = tmp_path / "near"
    size = write(near / "mine", 6)  # somebody's own set, inside a cache
    (near / "shard.00099.mds").write_bytes(b"precious")
    for path in near.rglob("shard*"):
        os.utime(path, (1, 1))
    dataset = StreamingDataset(remote=str(far), local=str(near), cache_limit=2 * size)
    for _ in range(3):
        assert ids(dataset) == list(range(32))
    assert len(list(near.glob("mine/shard*"))) == 6
    assert (near / "shard.00099.mds").exists()
    assert len(list(near.glob("shard*"))) <= 3


# -- limits ----------------------------------------------------------------------------


def test_a_limit_below_the_largest_shard_is_refused(tmp_path, far):
    with pytest.raises(
        ConfigError, match=r"cache_limit=100: shard 0 of .*far alone takes \d+ bytes"
    ):
        StreamingDataset(remote=str(far), local=str(tmp_path / "near"), cache_limit=100)


def test_all_splits_of_a_directory_share_its_limit(tmp_path, write):
    sizes = [write(tmp_path / "far" / split) for split in ("train", "test")]
    near = tmp_path / "near"
    limit = 3 * max(sizes)
    streams = [
        Stream(remote=str(tmp_path / "far"), local=str(near), split=split)
        for split in ("train", "test")
    ]
    dataset = StreamingDataset(streams=streams, cache_limit=limit)
    assert sorted(ids(dataset)) == sorted([*range(32), *range(32)])
    assert len(list(near.rglob("shard*"))) == 3
    assert len(list((near / "test").glob("shard*"))) == 3


def test_streams_that_share_a_directory_agree_on_its_limit(tmp_path, write):
    for split in ("train", "test"):
        write(tmp_path / "far" / split)
    near = tmp_path / "near"
    (tmp_path / "link").symlink_to(near)
    common = {"remote": str(tmp_path / "far")}
    streams = [
        Stream(**common, local=str(near), split="train", cache_limit="1mb"),
        Stream(**common, local=str(tmp_path / "link"), split="test"),
    ]
    StreamingDataset(streams=streams, cache_limit=1 << 20)
    with pytest.raises(ConfigError, match="streams that share a directory share its limit"):
        StreamingDataset(streams=streams)
    with pytest.raises(ConfigError, match="streams that share a directory share its limit"):
        StreamingDataset(streams=streams, cache_limit="2mb")


@pytest.mark.parametrize("method", METHODS)
def test_a_limited_data_set_reads_in_other_processes(tmp_path, write, method, torch_classes):
    torch_dataset, loader_class = torch_classes
    size = write(tmp_path / "far", 12)
    dataset = torch_dataset(
        remote=str(tmp_path / "far"), local=str(tmp_path / "near"), cache_limit=4 * size,
        batch_size=4, shuffle=True, predownload=1,
    )  # fmt: skip
    loader = loader_class(dataset, batch_size=4, num_workers=2, multiprocessing_context=method)
    for _ in range(2 if method == "fork" else 1):
        seen = [number for batch in loader for number in batch["id"].tolist()]
        assert sorted(seen) == list(range(96))
    assert len(list((tmp_path / "near").glob("shard*"))) <= 4


def test_a_missing_shard_names_what_is_missing(tmp_path, far):
    (far / FIRST).unlink()
    before = multiprocessing.active_children()
    with pytest.raises(NotFound, match=rf"far/{FIRST} does not exist"):
        StreamingDataset(remote=str(far), local=str(tmp_path / "near"))[0]
    assert multiprocessing.active_children() == before


@pytest.mark.parametrize("predownload", [None, 1000])
def test_no_more_is_fetched_ahead_than_half_of_a_cache(tmp_path, write, serve, predownload):
    size = write(tmp_path / "far", 40)
    dataset = StreamingDataset(
        remote=serve(tmp_path / "far").url, local=str(tmp_path / "near"), cache_limit=20 * size,
        batch_size=8, predownload=predownload,
    )  # fmt: skip
    batches = dataset.batches()
    next(batches)
    time.sleep(0.5)
    # Blocks of 1, 2, 4 and 8 shards: the last of them comes to half the limit.
    assert len(list((tmp_path / "near").glob("shard*"))) <= 15
    assert sum(len(batch["id"]) for batch in batches) == 312
