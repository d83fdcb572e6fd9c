"""A bucket on the local server."""

from __future__ import annotations

import uuid

import pytest
from botocore.config import Config
from botocore.loaders import JSONFileLoader


@pytest.fixture(scope="session", autouse=True)
def models():
    """Let botocore read what it knows of S3 once, not for each of hundreds of clients."""
    with pytest.MonkeyPatch.context() as patch:
        read, found = JSONFileLoader.load_file, {}

        def load_file(self, path):
            if path not in found:
                found[path] = read(self, path)
            return found[path]

        patch.setattr(JSONFileLoader, "load_file", load_file)
        yield


@pytest.fixture(scope="session")
def endpoint(s3_server):
    return s3_server


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in (
        "AWS_REQUEST_CHECKSUM_CALCULATION",
        "S3_ENDPOINT_URL",
        "MOSAICML_STREAMING_AWS_REQUESTER_PAYS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


@pytest.fixture(scope="session")
def client(endpoint):
    """Another client of the same server."""
    import boto3  # a fixture need not delay the collection of tests

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
    )
    yield client
    client.close()


@pytest.fixture
def bucket(client):
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    return name
