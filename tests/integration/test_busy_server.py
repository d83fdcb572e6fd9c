"""Shards of a server that answers 429, and says when to ask again."""

from __future__ import annotations

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import Transient
from streamplug.transfer import ranges, retry

pytest.importorskip("aiohttp")

SHARD = "shard.00000.mds"
TIMEOUT = 5.0
ASKED = 40  # longer than the stall timeout


@pytest.fixture
def server(tmp_path):
    with MDSWriter(out=tmp_path / "far", columns={"b": "bytes"}) as out:
        for n in range(8):
            out.write({"b": bytes([n]) * 1000})
    with serving(tmp_path / "far") as server:
        server.refusal_headers = {"Retry-After": str(ASKED)}
        yield server


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, in none of which time passes."""
    monkeypatch.setattr(ranges, "PARALLEL_DOWNLOAD_BYTES", 2000)
    monkeypatch.setattr(ranges, "PART_BYTES", 1000)
    monkeypatch.setattr(ranges, "PARTS_IN_FLIGHT", 1)
    found = []
    monkeypatch.setattr(retry, "sleep", found.append)
    return found


def refuse(server, times):
    """Refuse so many requests for parts after the second one."""
    answers = iter([0, 0, 0, *[429] * times])  # the first one asks whether it has parts

    def refuses(method, target):
        return next(answers, 0) if method == "GET" and target.endswith(SHARD) else 0

    server.refuses = refuses


def opened(server, tmp_path):
    near = str(tmp_path / "near")
    return StreamingDataset(
        remote=server.url,
        local=near,
        download_timeout=TIMEOUT,
        download_retry=2,
        download_patience=0,
        storage_options={"rate_limit": False},  # no time passes in which others would wait
    )


def test_parts_are_asked_for_again_when_the_server_says(server, tmp_path, pauses):
    dataset = opened(server, tmp_path)
    refuse(server, 2)
    assert [sample["b"][0] for sample in dataset] == list(range(8))
    assert pauses == [ASKED] * 2
    asked = [part for _, where, part in server.requests if where == SHARD and part != (0, 1)]
    size = (tmp_path / "near" / SHARD).stat().st_size
    parts = [(start, min(start + 1000, size)) for start in range(0, size, 1000)]
    assert asked == [*parts[:2], *[parts[2]] * 2, *parts[2:]]  # nothing that had arrived


def test_a_server_that_stays_busy_is_an_error_after_the_retries(server, tmp_path, pauses):
    dataset = opened(server, tmp_path)
    refuse(server, 99)
    with pytest.raises(Transient, match=r"answered 429; .*gave up after 3 attempts"):
        list(dataset)
    assert pauses == [ASKED] * 2
