"""A local workspace in a process of its own."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest


class Service:
    """The server, and a way round the clients."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.options = {"host": self.url, "token": "dapi-letmein"}

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
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    program = Path(__file__).with_name("workspace_server.py")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, program, folder], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while not (folder / "port").exists():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the server does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield Service(int((folder / "port").read_text()))
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def volume():
    return f"/Volumes/main/default/v{uuid.uuid4().hex[:12]}"


@pytest.fixture
def folder():
    return f"/mnt/f{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    for name in os.environ:
        if name.startswith(("DATABRICKS_", "ARM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
