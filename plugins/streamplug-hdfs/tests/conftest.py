"""A local cluster in a process of its own."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest


class Cluster:
    """The servers, and a way round the client."""

    def __init__(self, port, standby):
        self.port = port
        self.url, self.standby = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{standby}"

    def raw(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, f"/raw{quote(path)}", body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        assert response.status == 200, (response.status, data)
        return data


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hdfs")
    program = Path(__file__).with_name("hdfs_server.py")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, program, folder], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while not (folder / "port").exists():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the servers do not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield Cluster(*(folder / "port").read_text().split())
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def folder():
    return f"/user/me/f{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
