"""A local cluster in a process of its own."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cluster(emulate):
    cluster = emulate(Path(__file__).with_name("hdfs_server.py"))
    cluster.standby = f"http://127.0.0.1:{cluster.ports[1]}"
    return cluster


@pytest.fixture
def folder():
    return f"/user/me/f{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
