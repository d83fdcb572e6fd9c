"""A local Object Storage in a process of its own."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest


class Service:
    """The server, and a way round the client."""

    def __init__(self, port, folder):
        self.port, self.folder = port, folder
        self.url = f"http://127.0.0.1:{port}"

    def raw(self, method, bucket, key="", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, f"/raw/{bucket}/{quote(key)}", body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        assert response.status == 200, (response.status, data)
        return data

    @property
    def options(self):
        return {"endpoint_url": self.url, "config": str(self.folder / "config")}


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oci")
    program = Path(__file__).with_name("oci_server.py")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, program, folder], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while not (folder / "port").exists():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the server does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield Service(int((folder / "port").read_text()), folder)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def bucket(service):
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    service.raw("POST", name)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    names = ("OCI_CONFIG_FILE", "OCIFS_CONFIG_LOCATION", "OCIFS_CONFIG_PROFILE", "OCIFS_IAM_TYPE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
