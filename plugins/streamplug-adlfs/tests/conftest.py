"""A container on the local server."""

from __future__ import annotations

import uuid

import pytest

ACCOUNT = "devstoreaccount1"
# Every emulator has this account and this key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing from the configuration of whoever runs the tests."""
    for name in ("NAME", "KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_ACCOUNT_{name}", raising=False)
    for name in (
        "CONNECTION_STRING",
        "SAS_TOKEN",
        "CLIENT_ID",
        "CLIENT_SECRET",
        "TENANT_ID",
        "ANON",
    ):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    for name in ("NAME", "ACCESS_KEY"):
        monkeypatch.delenv(f"AZURE_ACCOUNT_{name}", raising=False)


class Container:
    """Another client of the same server."""

    account, key = ACCOUNT, KEY

    def __init__(self, server):
        # Whoever collects tests need not wait for it.
        from azure.storage.blob import BlobServiceClient

        self.endpoint = f"{server}/{ACCOUNT}"
        self.name = f"container-{uuid.uuid4().hex[:12]}"
        self.service = BlobServiceClient(
            self.endpoint, {"account_name": ACCOUNT, "account_key": KEY}
        )
        self.client = self.service.create_container(self.name)

    @property
    def options(self):
        return {
            "endpoint_url": self.endpoint,
            "account_name": self.account,
            "account_key": self.key,
        }

    def put(self, key, data):
        self.client.upload_blob(key, data, overwrite=True)

    def get(self, key):
        return self.client.download_blob(key).readall()


@pytest.fixture
def container(azure_server):
    container = Container(azure_server)
    yield container
    container.service.close()
