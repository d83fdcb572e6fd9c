"""Without a retry the first fault is the error, in the batch that needs what failed; what errors say."""

from __future__ import annotations

import time
import traceback
from types import SimpleNamespace

import pytest
from aiohttp import ClientTimeout

from streamplug.dataset import StreamingDataset
from streamplug.errors import (
    AccessDenied,
    CorruptShardError,
    HashMismatchError,
    NotFound,
    Transient,
)
from streamplug.transfer.download import StalledError

FAULTS = [
    ("reset", Transient, "ServerDisconnectedError: the connection failed"),
    ("reset-middle", Transient, "ClientPayloadError: the connection failed"),
    ("truncated", Transient, "ClientPayloadError: the connection failed"),
    ("short", CorruptShardError, "bytes, the index says"),
    ("flipped", HashMismatchError, "has xxh64 "),
    ("stall", StalledError, "nothing arrived for 0.4 s, after 0 bytes; check the network"),
    ("stall-middle", StalledError, "nothing arrived for 0.4 s, "),
    *((str(s), Transient, f"the server answered {s}; it may be tried") for s in (500, 503, 429)),
]
SECRETS = "http://me:secret@127.0.0.1:{port}/?signature=secret"


def stalls_count(monkeypatch, when):
    """Let time count for stall timeouts only when `when()` is true: healthy requests may be slow."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() if when() else 0.0)
    monkeypatch.setattr("streamplug.transfer.stall_timeout.time", clock)


@pytest.fixture
def six(tmp_path, write, faulty, monkeypatch):
    """A server of six shards of 16 samples, and a function that opens them."""
    write(tmp_path / "far", 6, hashes=["xxh64"])
    stalls_count(monkeypatch, lambda: False)
    server = faulty("--root", tmp_path / "far", "--stall", 20)

    def open_(**options):
        url = SECRETS.format(port=server.url.rpartition(":")[2])
        settings = {"remote": url, "batch_size": 4, "download_timeout": 0.4}
        settings |= {"download_retry": 0, "download_patience": 0}
        if options.get("access") != "range":
            settings["local"] = str(tmp_path / "near")
        return StreamingDataset(**settings | options)

    return server, open_


def until_error(dataset, kind):
    seen = []
    with pytest.raises(kind) as caught:
        seen.extend(sample["id"] for sample in dataset)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    return seen, caught.value


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("fault", "kind", "cause"), FAULTS)
def test_the_first_fault_is_raised_in_the_batch_that_needs_it(
    six, fault, kind, cause, tmp_path, monkeypatch
):
    server, open_ = six
    server.aim("shard.00003.mds", fault)
    dataset = open_()
    if kind is StalledError:
        before = [tmp_path / "near" / f"shard.0000{number}.mds" for number in range(3)]
        stalls_count(
            monkeypatch,
            lambda: fault in server.ask()["faults"] and all(path.exists() for path in before),
        )
    seen, error = until_error(dataset, kind)
    stalls_count(monkeypatch, lambda: False)
    assert seen == list(range(48))
    assert type(error) is kind
    assert f"{server.url}/shard.00003.mds" in str(error)
    assert cause in str(error)
    assert str(error).endswith("; gave up after 1 attempt; raise download_retry= for more")
    server.aim("shard.00003.mds", "none")
    assert {sample["id"] for sample in dataset} == set(range(91))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("fault", "kind", "cause"), [f for f in FAULTS if "stall" not in f[0]])
def test_so_it_is_by_range(six, fault, kind, cause):
    if fault == "flipped":
        pytest.skip("parts of a file have no digest")
    server, open_ = six
    server.aim("shard.00003.mds", fault)
    seen, error = until_error(open_(access="range"), kind)
    assert seen == list(range(48))
    assert f"{server.url}/shard.00003.mds" in str(error)
    assert str(error).endswith("; gave up after 1 attempt; raise download_retry= for more")


@pytest.mark.parametrize("fault", ["flipped", "short"])
def test_damage_on_the_way_is_fetched_again(six, fault):
    server, open_ = six
    server.aim("shard.00003.mds", f"{fault}-once")
    assert {sample["id"] for sample in open_(download_retry=1)} == set(range(91))
    assert server.ask()["requests"]["GET /shard.00003.mds"] == 2


def test_a_range_that_is_cut_short_on_the_way_is_fetched_again(six):
    server, open_ = six
    server.aim("shard.00003.mds", "short-once")
    dataset = open_(download_retry=1, access="range")
    assert {sample["id"] for sample in dataset} == set(range(91))
    assert server.ask()["faults"] == {"short": 1}


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (403, AccessDenied, "check the credentials, its access rules, and region and endpoint"),
        (404, NotFound, "does not exist; check the URL, and region and endpoint"),
    ],
)
def test_what_is_refused_is_not_tried_again(six, status, kind, hint):
    server, open_ = six
    server.aim("shard.00003.mds", str(status))
    seen, error = until_error(open_(download_retry=3), kind)
    assert seen == list(range(48))
    assert f"{server.url}/shard.00003.mds" in str(error)
    assert hint in str(error)
    assert server.ask()["requests"]["GET /shard.00003.mds"] == 1


def opening(kind, url, **options):
    with pytest.raises(kind) as caught:
        StreamingDataset(remote=url, download_retry=0, access="range", **options)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_an_index_that_is_missing_says_where_to_look(six):
    server, open_ = six
    server.aim("index.json", "404")
    with pytest.raises(NotFound, match="check remote=, local= and split=, and region and endpoint"):
        open_()
    server.aim("index.json", "403")
    with pytest.raises(AccessDenied, match="check the credentials"):
        open_()


def test_a_server_that_is_gone_says_to_check_the_endpoint(faulty, tmp_path):
    server = faulty("--root", tmp_path)
    server.stop()
    text = opening(Transient, SECRETS.format(port=server.url.rpartition(":")[2]))
    assert text.startswith(
        f"{server.url}/index.json: ClientConnectorError: the connection was refused; "
    )
    assert "check the URL or endpoint, and its port; gave up after 1 attempt" in text


def test_a_host_without_an_address_says_to_check_the_url():
    text = opening(Transient, "http://me:secret@nowhere.invalid/set?signature=secret")
    assert text.startswith("http://nowhere.invalid/set/index.json: ")
    assert "the name of its host was not found; check the URL, its region and endpoint" in text


def test_a_server_that_says_nothing_is_told_from_one_that_is_gone(six):
    server, _ = six
    server.aim("index.json", "stall")
    options = {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_read=0.3)}}
    url = SECRETS.format(port=server.url.rpartition(":")[2])
    text = opening(Transient, url, storage_options=options)
    assert text.startswith(f"{server.url}/index.json: ")
    assert "it timed out; check the network and the endpoint" in text
