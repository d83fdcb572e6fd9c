"""Credentials of the machine, from a service that fails at times."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from streamplug_s3fs.storage import S3Storage

from streamplug.errors import AccessDenied, Transient
from streamplug.transfer.retry import call_with_retries

ROLES = "/latest/meta-data/iam/security-credentials/"


class Service(http.server.ThreadingHTTPServer):
    """Answers as the metadata service of EC2 does; `failures` are the statuses of the next answers."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.failures, self.has_role = [], True
        self.token_status, self.asked = 200, []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self):
        self.server.asked.append(self.path)
        status, body = 200, b"token"
        if self.path == ROLES:
            status, body = (200, b"role") if self.server.has_role else (404, b"")
        elif self.path == f"{ROLES}role":
            names = ("AccessKeyId", "SecretAccessKey", "Token")
            content = {**dict.fromkeys(names, "x"), "Expiration": "2999-01-01T00:00:00Z"}
            body = json.dumps({**content, "Code": "Success"}).encode()
        if self.server.token_status != 200:  # without a token, nothing is told
            status, body = 401 if self.path.startswith(ROLES) else self.server.token_status, b""
        elif self.path.startswith(ROLES) and self.server.failures:
            status, body = self.server.failures.pop(0), b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = answer


@pytest.fixture
def service(monkeypatch):
    server = Service()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def storage(bucket, client, endpoint):
    client.put_object(Bucket=bucket, Key="k", Body=b"data")
    storage = S3Storage(f"s3://{bucket}", endpoint_url=endpoint)
    yield storage
    storage.close()


@pytest.mark.parametrize("status", [500, 429])
@pytest.mark.parametrize(
    "read",
    [
        lambda s, _: s.read("k"),
        lambda s, _: s.read_range("k", 0, 4),
        lambda s, path: (s.download("k", path), path.read_bytes())[1],
        lambda s, _: b"data" * (s.stat("k").size == 4),
    ],
    ids=["read", "read_range", "download", "stat"],
)
def test_a_failure_of_the_service_is_tried_again(service, storage, tmp_path, status, read):
    service.failures = [status, status]  # botocore's question and ours
    with pytest.raises(Transient, match="/k: the service that gives this machine its credentials"):
        read(storage, tmp_path / "k")
    service.failures = [status]
    assert call_with_retries(lambda: read(storage, tmp_path / "k"), 2) == b"data"


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_gives_no_token_for_now_is_asked_again(service, storage, status):
    service.token_status = status
    with pytest.raises(Transient, match="/k: the service that gives this machine its credentials"):
        storage.read("k")
    service.token_status = 200
    assert storage.read("k") == b"data"


def test_a_machine_without_a_role_has_no_credentials(service, storage):
    service.has_role = False
    with pytest.raises(AccessDenied, match="no credentials for"):
        storage.read("k")


def test_a_machine_without_the_service_has_no_credentials(storage, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(AccessDenied, match="no credentials for"):
        storage.read("k")


def test_many_storages_ask_for_the_credentials_of_the_machine_once(
    service, bucket, client, endpoint
):
    client.put_object(Bucket=bucket, Key="0/k", Body=b"data")
    storages = [S3Storage(f"s3://{bucket}/{n % 1}", endpoint_url=endpoint) for n in range(20)]
    assert {storage.read("k") for storage in storages} == {b"data"}
    assert service.asked.count(f"{ROLES}role") == 1
