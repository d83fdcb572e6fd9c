"""A local cluster in a process of its own."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def service(emulate):
    return emulate(Path(__file__).with_name("ais_server.py"))


@pytest.fixture
def bucket(service):
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    service.raw("POST", name)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("AIS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
