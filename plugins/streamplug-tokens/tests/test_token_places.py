"""Rows of tokens of data sets that are away, or are read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamplug import MDSWriter, TokenBlocks, TokenDataset, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.plugin.registry import unregister
from streamplug.plugin_kit.error_mapping import storage_error

COUNT = 40
VIEW = TokenBlocks(column="tokens", length=16)


def write(out: Any, **options: Any) -> None:
    with MDSWriter(out=out, columns={"tokens": "ndarray:uint16"}, **options) as writer:
        for number in range(COUNT):
            writer.write({"tokens": np.full(number + 1, number, np.uint16)})


class Away(LocalStorage):
    """A directory that may be out of reach."""

    is_away = False

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__("file" + url[url.index(":") :], **options)

    def translated(self, key: str) -> Any:
        if self.is_away:
            raise storage_error(ConnectionRefusedError(), self.url_of(key))
        return super().translated(key)


@pytest.fixture
def away(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    monkeypatch.setattr(Away, "is_away", False)
    register_storage("away", Away)
    yield Away
    unregister("storage", "away")


def test_rows_are_read_without_a_network(tmp_path, away):
    write(tmp_path / "far")
    places = {"remote": f"away://{tmp_path}/far", "local": str(tmp_path / "near")}
    rows = [row["tokens"].tolist() for row in TokenDataset(tokens=VIEW, **places)]
    away.is_away = True
    assert [row["tokens"].tolist() for row in TokenDataset(tokens=VIEW, **places)] == rows


def test_counting_tokens_changes_nothing_where_the_data_set_is(tmp_path):
    root = tmp_path / "set"
    write(root, compression="gz")

    def files() -> dict[str, tuple[bytes, int]]:
        paths = [path for path in root.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    before = files()
    assert list(TokenDataset(tokens=VIEW, local=str(root), batch_size=2))
    assert files() == before
