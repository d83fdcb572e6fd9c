"""Places on the local servers, each with another client of the same server, imported when it is used."""

from __future__ import annotations

import functools
import http.server
import json
import threading
import uuid

import pytest
import requests

ACCOUNT = "devstoreaccount1"
# Every emulator of Azure has this account and this key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CLEARED = (
    "AWS_ENDPOINT", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN", "GOOGLE_SKIP_SIGNATURE",
    "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_SKIP_SIGNATURE", "AZURE_AUTHORITY_HOST",
    "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "S3_ENDPOINT_URL",
    "MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_BUCKET", "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_ACCOUNT_NAME",
    "AZURE_ACCOUNT_ACCESS_KEY",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing from the configuration of whoever runs the tests."""
    for name in CLEARED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def unique(kind):
    return f"{kind}-{uuid.uuid4().hex[:12]}"


class S3Bucket:
    def __init__(self, server):
        import boto3
        from botocore.config import Config

        self.name = unique("bucket")
        self.url = f"s3://{self.name}"
        self.options = {"endpoint_url": server, "key": "me", "secret": "s3cr3t-ACCESS-key"}
        self.client = boto3.client(
            "s3",
            endpoint_url=server,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
        )
        self.client.create_bucket(Bucket=self.name)

    def put(self, key, data):
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key):
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def close(self):
        self.client.close()


class AzureContainer:
    def __init__(self, server):
        from azure.storage.blob import BlobServiceClient

        self.name = unique("container")
        self.url = f"az://{self.name}"
        self.endpoint = f"{server}/{ACCOUNT}"
        self.options = {
            "endpoint_url": self.endpoint,
            "account_name": ACCOUNT,
            "account_key": KEY,
        }
        self.service = BlobServiceClient(
            self.endpoint, {"account_name": ACCOUNT, "account_key": KEY}
        )
        self.client = self.service.create_container(self.name)

    def put(self, key, data):
        self.client.upload_blob(key, data, overwrite=True)

    def get(self, key):
        return self.client.download_blob(key).readall()

    def close(self):
        self.service.close()


class GCSBucket:
    def __init__(self, server):
        self.name = unique("bucket")
        self.url = f"gs://{self.name}"
        self.options = {"endpoint_url": server, "anon": True}
        self.server, self.session = server, requests.Session()
        self.call("/storage/v1/b", json={"name": self.name})

    def call(self, path, **arguments):
        self.session.post(self.server + path, timeout=30, **arguments).raise_for_status()

    def put(self, key, data):
        path = f"/upload/storage/v1/b/{self.name}/o"
        self.call(path, params={"uploadType": "media", "name": key}, data=data)

    def put_encoded(self, key, data):
        """Put an object whose metadata have ``Content-Encoding: gzip``."""
        metadata = json.dumps({"name": key, "contentEncoding": "gzip"}).encode()
        parts = [b"Content-Type: application/json", metadata], [b"Content-Type: text/plain", data]
        body = b"".join(b"--x\r\n" + b"\r\n\r\n".join(part) + b"\r\n" for part in parts)
        self.call(
            f"/upload/storage/v1/b/{self.name}/o",
            params={"uploadType": "multipart"},
            data=body + b"--x--\r\n",
            headers={"Content-Type": "multipart/related; boundary=x"},
        )

    def close(self):
        self.session.close()


@pytest.fixture
def s3(s3_server):
    bucket = S3Bucket(s3_server)
    yield bucket
    bucket.close()


@pytest.fixture
def azure(azure_server):
    container = AzureContainer(azure_server)
    yield container
    container.close()


@pytest.fixture
def gcs(gcs_server):
    bucket = GCSBucket(gcs_server)
    yield bucket
    bucket.close()


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass


@pytest.fixture
def files(tmp_path):
    """A directory, and the URL of a server that shows it and knows no ranges."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(_Files, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
