"""A local Hub in a process of its own."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def hub(emulate):
    return emulate(Path(__file__).with_name("hub_server.py"))


@pytest.fixture
def repository(hub):
    name = f"team/set-{uuid.uuid4().hex[:12]}"
    hub.raw("POST", name)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path, hub):
    """Nothing from the configuration of whoever runs the tests; the package reads it when imported."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH"):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", str(tmp_path / name))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
