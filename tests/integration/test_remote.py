"""Data sets on a server: what is transferred, what damage looks like, and that stopping is quick."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import CorruptShardError, NotFound, StorageError
from streamplug.transfer import ranges as ranged
from streamplug.transfer.pool import IDLE_SECONDS
from tests.start_methods import METHODS

pytest.importorskip("aiohttp")

SIZE = 20_000
COUNT = 200


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("www")
    draws = np.random.default_rng(1)
    with MDSWriter(out=root / "set", columns={"n": "int", "b": "bytes"}, size_limit=1 << 19) as out:
        for n in range(COUNT):
            out.write({"n": n, "b": draws.bytes(SIZE)})
    return root


@pytest.fixture
def server(written):
    with serving(written) as server:
        yield server


def near(written, **wishes):
    return StreamingDataset(local=str(written / "set"), **wishes)


def far(server, **wishes):
    return StreamingDataset(remote=f"{server.url}/set", download_retry=0, **wishes)


@pytest.fixture(autouse=True)
def others():
    """Threads of other tests of this process, which may have ended theirs only just."""
    _OTHERS.clear()
    _OTHERS.update(threading.enumerate())


_OTHERS = set()


def threads():
    # Those of requests wait for the next one for a while.
    end = time.monotonic() + 2 * IDLE_SECONDS
    while names := [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("streamplug") and thread not in _OTHERS
    ]:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return names


NO_HEDGING = {"hedge": False}
"""Storage options with which late requests, of which a loaded machine has some, add no bytes."""


def test_a_few_samples_of_a_big_set_transfer_little(server, written):
    dataset = far(server, access="range")
    index = server.bytes_sent
    assert [s["n"] for s in dataset[[3, 150, 77]]] == [3, 150, 77]
    assert dataset[42]["b"] == near(written)[42]["b"]
    assert server.bytes_sent - index < 4 * (SIZE + 10_000)
    assert not any(request[0] == "HEAD" for request in server.requests)


def test_an_epoch_by_ranges_is_that_of_shards(server, written, tmp_path):
    wishes = {"batch_size": 8, "shuffle": True}
    wanted = [(s["n"], s["b"]) for s in near(written, **wishes)]
    by_range = far(server, access="range", storage_options=NO_HEDGING, **wishes)
    assert [(s["n"], s["b"]) for s in by_range] == wanted
    assert server.bytes_sent < 1.2 * COUNT * SIZE + 20_000
    batches = far(server, access="range", **wishes).batches()
    assert [n for batch in batches for n in batch["n"].tolist()] == [n for n, _ in wanted]
    whole = far(server, local=str(tmp_path), **wishes)
    assert [(s["n"], s["b"]) for s in whole] == wanted


def test_a_subclass_that_changes_samples_uses_what_was_fetched(server):
    class Doubled(StreamingDataset):
        def __getitem__(self, at):
            sample = super().__getitem__(at)
            return {"n": 2 * sample["n"]}

    dataset = Doubled(
        remote=f"{server.url}/set", access="range", storage_options=NO_HEDGING, batch_size=8
    )
    assert [s["n"] for s in dataset] == [2 * n for n in range(COUNT)]
    assert server.bytes_sent < 1.2 * COUNT * SIZE + 20_000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("access", ["range", "shard"])
def test_workers_read_what_one_process_reads(server, written, tmp_path, method, access):
    torch_data = pytest.importorskip("torch.utils.data")
    wishes = {"batch_size": 8, "shuffle": True}
    dataset = far(server, access=access, local=str(tmp_path), **wishes)
    assert dataset[5]["n"] == 5  # this process has a client of its own by now
    workers = 1 if method == "spawn" else 2  # one that is spawned takes seconds
    loader = torch_data.DataLoader(
        dataset, batch_size=8, num_workers=workers, multiprocessing_context=method
    )
    found = [n for batch in loader for n in batch["n"].tolist()]
    assert found == [s["n"] for s in near(written, **wishes)]


# -- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lambda path, wanted, data: data[:-7], r"sample \d+: .*shard.*got"),
        (lambda path, wanted, data: None, r"sample \d+: .*shard.*got 0 bytes"),
        (lambda path, wanted, data: b"\xff" * len(data), r"sample \d+: its \d+ bytes do not hold"),
    ],
    ids=["short", "416", "wrong"],
)
@pytest.mark.parametrize("many", [False, True])
def test_wrong_answers_name_file_and_sample(server, lie, message, many):
    dataset = far(server, access="range", batch_size=8)
    assert dataset[10]["n"] == 10
    server.lie = lie
    with pytest.raises(
        CorruptShardError, match=r"shard 0 \(http.*/set/shard.00000.mds\): " + message
    ):
        dataset[[11, 12]] if many else dataset[11]


def test_a_part_from_elsewhere_is_refused(server, monkeypatch):
    dataset = far(server, access="range")
    send = type(server).RequestHandlerClass = server.RequestHandlerClass
    head = send._head

    def shifted(self, status, length, content_range=""):
        head(self, status, length, content_range.replace("bytes ", "bytes 9"))

    monkeypatch.setattr(send, "_head", shifted)
    with pytest.raises(
        StorageError, match=r"shard.00000.mds: the server sent bytes 9\S+ where bytes"
    ):
        dataset[0]


def test_a_failure_comes_with_the_batch_that_needs_it(server, written, tmp_path):
    server.lie = lambda path, wanted, data: data[:-1] if path.endswith("2.mds") else data
    for wishes in ({"access": "range"}, {"local": str(tmp_path)}):
        dataset = far(server, batch_size=5, **wishes)
        first = int(dataset._reader.starts[2])
        found = []
        with pytest.raises(CorruptShardError, match=r"shard 2\b.*shard.00002.mds"):
            found.extend(n for batch in dataset.batches() for n in batch["n"].tolist())
        least = first // 5 * 5
        assert found == list(range(len(found)))
        assert least <= len(found) <= int(dataset._reader.starts[3])
        assert threads() == []


# -- large shards -----------------------------------------------------------------------


@pytest.mark.parametrize("served", [True, False])
def test_large_shards_come_in_parts_where_the_server_has_parts(
    server, written, tmp_path, monkeypatch, served
):
    monkeypatch.setattr(ranged, "PARALLEL_DOWNLOAD_BYTES", 1000)
    monkeypatch.setattr(ranged, "PART_BYTES", 50_000)
    server.ranges = served
    dataset = far(server, local=str(tmp_path))
    assert [s["n"] for s in dataset] == list(range(COUNT))
    parts = [r for r in server.requests if r[1].endswith(".mds") and r[2]]
    assert (len(parts) > 50) is served
    for path in (written / "set").glob("*.mds"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_large_shard_that_is_too_short_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(ranged, "PARALLEL_DOWNLOAD_BYTES", 1000)
    server.lie = lambda path, wanted, data: data[:-1] if path.endswith("mds") else data
    with pytest.raises(CorruptShardError, match=r"shard 0: http.*shard.00000.mds: .*cut short"):
        far(server, local=str(tmp_path))[0]
    assert not list(tmp_path.glob("**/*.tmp"))


# -- stopping -----------------------------------------------------------------------------


def later_shards(path):
    return path.endswith(".mds") and not path.endswith("00000.mds")


def is_stuck(server):
    end = time.monotonic() + 60
    while not any(later_shards(request[1]) for request in server.requests):
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.1)
    return True


@pytest.mark.parametrize("access", ["range", "shard"])
def test_stopping_does_not_wait_for_the_network(server, tmp_path, access):
    server.holds = later_shards
    samples = iter(far(server, access=access, local=str(tmp_path), batch_size=1))
    assert [next(samples)["n"] for _ in range(8)] == list(range(8))
    assert is_stuck(server)
    samples.close()  # the server would hold it for longer than a test may take
    assert threads() == []
    assert not list(tmp_path.glob("**/*.tmp"))
    again = far(server, access=access, local=str(tmp_path), batch_size=1)
    server.gate.set()
    assert len(list(again)) == COUNT


def test_an_exception_in_the_loop_leaves_nothing(server, tmp_path):
    server.holds = later_shards

    def loop():
        for sample in far(server, local=str(tmp_path), batch_size=1):
            if sample["n"] == 7:
                assert is_stuck(server)
                raise KeyError("mine")

    with pytest.raises(KeyError):
        loop()
    assert threads() == []
    assert not list(tmp_path.glob("**/*.tmp"))


@pytest.mark.parametrize("method", METHODS)
def test_workers_that_are_not_needed_any_more_end_at_once(server, tmp_path, method, monkeypatch):
    torch_data = pytest.importorskip("torch.utils.data")
    # After so many seconds torch would end them itself: later than the test is given up.
    monkeypatch.setattr(torch_data._utils, "MP_STATUS_CHECK_INTERVAL", 600.0)
    server.holds = later_shards
    loader = torch_data.DataLoader(
        far(server, local=str(tmp_path), batch_size=1),
        num_workers=1 if method == "spawn" else 2,
        multiprocessing_context=method,
    )
    batches = iter(loader)
    assert [int(next(batches)["n"]) for _ in range(3)] == [0, 1, 2]
    assert is_stuck(server)
    workers = batches._workers
    batches._shutdown_workers()
    assert {worker.exitcode for worker in workers} == {0}
    assert not list(tmp_path.glob("**/*.tmp"))


SCRIPT = """
import sys
from streamplug import StreamingDataset
dataset = StreamingDataset(remote=sys.argv[1], local=sys.argv[2], batch_size=1)
samples = iter(dataset)
print([next(samples)["n"] for _ in range(8)][0], flush=True)
sys.stdin.readline()
"""


def test_a_program_that_ends_in_mid_epoch_ends_at_once(server, tmp_path):
    server.holds = later_shards
    command = [sys.executable, "-c", SCRIPT, f"{server.url}/set", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert program.stdout.readline() == "0\n"
    assert is_stuck(server)
    try:
        _, errors = program.communicate("\n", timeout=120)  # the server would hold it for longer
    finally:
        program.kill()
    # A client may see its connection go, and say that it would try again, before it is told to stop.
    said = [line for line in errors.splitlines() if "; attempt 2 follows in " not in line]
    assert (program.returncode, said) == (0, [])
    assert not list(Path(tmp_path).glob("**/*.tmp"))


def test_what_is_missing_is_said(server):
    with pytest.raises(NotFound, match=r"/nothing/index.json does not exist"):
        StreamingDataset(remote=f"{server.url}/nothing", access="range")
