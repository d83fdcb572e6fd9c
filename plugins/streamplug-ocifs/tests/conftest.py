"""A local Object Storage in a process of its own."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def service(emulate):
    service = emulate(Path(__file__).with_name("oci_server.py"))
    service.options["config"] = str(service.folder / "config")
    return service


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
