"""Files that are replaced while they are downloaded in parts over HTTP."""

from __future__ import annotations

import pytest
from streamplug_fsspec import HttpStorage
from streamplug_testing.http import serving

from streamplug.errors import ObjectReplaced
from streamplug.transfer import ranges
from streamplug.transfer.download import download_file
from streamplug.types import FileInfo

OLD, NEW = b"o" * 80, b"n" * 80


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(ranges, "PARALLEL_DOWNLOAD_BYTES", 50)
    monkeypatch.setattr(ranges, "PART_BYTES", 10)
    (tmp_path / "k").write_bytes(OLD)
    with serving(tmp_path) as server:
        yield server


def get(server):
    target = server.root / "target"
    download_file(HttpStorage(server.url), FileInfo("k", 80, {}), target, retries=0, timeout=60)
    return target.read_bytes()


def requested(server):
    return sorted(byte_range or () for _, _, byte_range in server.requests)


@pytest.mark.parametrize("understands", [True, False])
@pytest.mark.parametrize("responses", range(2, 6))
def test_parts_of_two_versions_are_not_mixed(server, caplog, responses, understands):
    server.conditions = understands
    # The first response is of the request that finds out whether there are ranges, and then come four parts.
    server.replace_after(responses, server.root / "k", NEW)
    assert get(server) == NEW
    assert "/k: it was replaced while it was read; " in caplog.text
    assert "downloading it as a whole" in caplog.text
    assert requested(server)[0] == ()


def test_a_file_that_stays_comes_in_parts_alone(server):
    assert get(server) == OLD
    assert requested(server) == [(0, 1), *((at, at + 10) for at in range(0, 80, 10))]


def test_a_file_without_etag_or_time_comes_as_a_whole(server):
    server.tags = False
    server.replace_after(2, server.root / "k", NEW)
    assert get(server) == OLD
    assert requested(server) == [(), (0, 1)]


@pytest.mark.parametrize("understands", [True, False])
def test_another_version_is_refused(server, understands):
    server.conditions = understands
    storage = HttpStorage(server.url)
    parts, version = storage.read_version("k", [(0, 10), (70, 90), (90, 95)])
    assert (parts, bool(version)) == ([b"o" * 10, b"o" * 10, b""], True)
    server.replace_after(1, server.root / "k", NEW)
    assert storage.read_version("k", [(5, 6)], version) == ([b"o"], version)
    with pytest.raises(ObjectReplaced, match=f"^{server.url}/k: it was replaced"):
        storage.read_version("k", [(5, 6)], version)


def test_a_server_that_loses_its_ranges_gives_parts_of_the_whole(server):
    storage = HttpStorage(server.url)
    _, version = storage.read_version("k", [(0, 10)])
    server.ranges = False
    assert storage.read_version("k", [(0, 2), (3, 4)], version) == ([b"oo", b"o"], version)
    server.replace_after(1, server.root / "k", NEW)
    storage.read("k")
    with pytest.raises(ObjectReplaced):
        storage.read_version("k", [(0, 2)], version)
