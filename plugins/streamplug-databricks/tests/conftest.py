"""A local workspace in a process of its own."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def service(emulate):
    service = emulate(Path(__file__).with_name("workspace_server.py"))
    service.options = {"host": service.url, "token": "dapi-letmein"}
    return service


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
