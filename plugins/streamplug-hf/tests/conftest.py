"""A local Hub in a process of its own."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest


class Hub:
    """The server, and a way round the client."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def raw(self, method, repository, key="", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, f"/raw/{repository}/{quote(key)}", body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        assert response.status == 200, (response.status, data)
        return data


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    program = Path(__file__).with_name("hub_server.py")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, program, folder], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while not (folder / "port").exists():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the server does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield Hub(int((folder / "port").read_text()))
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def repository(hub):
    name = f"team/set-{uuid.uuid4().hex[:12]}"
    hub.raw("POST", name)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path, hub):
    """Nothing from the configuration of whoever runs the tests; the package reads it when imported."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH"):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", str(tmp_path / name))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
