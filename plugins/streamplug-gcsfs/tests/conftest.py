"""A bucket on the local server."""

from __future__ import annotations

import json
import uuid

import pytest
import requests


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests, and no search for it."""
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-configuration"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


class Bucket:
    """Another client of the same server."""

    def __init__(self, server):
        self.server, self.name = server, f"bucket-{uuid.uuid4().hex[:12]}"
        self.session = requests.Session()
        self.call("POST", "/storage/v1/b", json={"name": self.name})

    def call(self, method, path, **arguments):
        answer = self.session.request(method, self.server + path, timeout=30, **arguments)
        answer.raise_for_status()
        return answer

    def put(self, key, data):
        self.call(
            "POST",
            f"/upload/storage/v1/b/{self.name}/o",
            params={"uploadType": "media", "name": key},
            data=data,
            headers={"Content-Type": "application/octet-stream"},
        )

    def put_encoded(self, key, data):
        """Put an object whose metadata have ``Content-Encoding: gzip``."""
        metadata = json.dumps({"name": key, "contentEncoding": "gzip"}).encode()
        parts = [b"Content-Type: application/json", metadata], [b"Content-Type: text/plain", data]
        body = b"".join(b"--x\r\n" + b"\r\n\r\n".join(part) + b"\r\n" for part in parts)
        self.call(
            "POST",
            f"/upload/storage/v1/b/{self.name}/o",
            params={"uploadType": "multipart"},
            data=body + b"--x--\r\n",
            headers={"Content-Type": "multipart/related; boundary=x"},
        )

    def get(self, key):
        quoted = requests.utils.quote(key, safe="")
        return self.call("GET", f"/storage/v1/b/{self.name}/o/{quoted}?alt=media").content


@pytest.fixture
def bucket(gcs_server):
    bucket = Bucket(gcs_server)
    yield bucket
    bucket.session.close()
