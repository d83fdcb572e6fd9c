from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from streamplug.builtin.storages.fsspec import AnyFsspec
from streamplug.errors import StorageError, Transient
from streamplug.write.upload import Uploader


class Far(AnyFsspec):
    """Files of a directory; uploads wait for a gate and can be made to fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.begun = 0

    def upload(self, path: Path, key: str) -> None:
        self.begun += 1
        assert self.gate.wait(60)
        if self.error:
            raise self.error
        super().upload(path, key)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)


@pytest.fixture
def far(tmp_path):
    return Far(tmp_path / "far")


def uploader(far: Far, folder: Path, *, keep_local: bool = True, retries: int = 0) -> Uploader:
    for number in range(10):
        (folder / f"file.{number}").write_text(str(number))
    return Uploader(
        far, folder, keep_local=keep_local, durable=True, retries=retries, num_threads=2
    )


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streamplug-upload")]


@pytest.mark.parametrize("keep_local", [True, False])
def test_files_are_sent_in_the_background(tmp_path, far, keep_local):
    it = uploader(far, tmp_path, keep_local=keep_local)
    for number in range(10):
        it.put(f"file.{number}")
    it.drain()
    it.close()
    assert {p.read_text() for p in (tmp_path / "far").iterdir()} == set("0123456789")
    assert (tmp_path / "file.3").exists() is keep_local
    assert threads() == []


def test_no_more_files_wait_than_twice_the_threads(tmp_path, far):
    it = uploader(far, tmp_path)
    far.gate.clear()
    for number in range(4):
        it.put(f"file.{number}")
    threading.Timer(0.1, far.gate.set).start()
    it.put("file.4")  # waits for the first
    assert far.gate.is_set()
    it.drain()
    it.close()


def test_a_failure_is_told_at_a_later_call(tmp_path, far):
    it = uploader(far, tmp_path)
    far.error = StorageError("no")
    it.put("file.0")
    with pytest.raises(StorageError, match=r"^no$"):
        it.drain()
    it.close()


def test_a_failure_is_told_when_the_queue_is_full(tmp_path, far):
    it = uploader(far, tmp_path)
    far.error = StorageError("no")
    for number in range(4):
        it.put(f"file.{number}")
    with pytest.raises(StorageError, match=r"^no$"):
        it.put("file.4")
    it.close()


def test_passing_failures_are_tried_again_so_often(tmp_path, far):
    it = uploader(far, tmp_path, retries=3)
    far.error = Transient("busy")
    it.put("file.0")
    with pytest.raises(Transient, match="gave up after 4 attempts; raise retry= for more"):
        it.drain()
    assert far.begun == 4
    it.close()


def test_closing_drops_what_has_not_begun(tmp_path, far):
    it = uploader(far, tmp_path)
    far.gate.clear()
    for number in range(4):
        it.put(f"file.{number}")
    end = time.monotonic() + 60
    while far.begun < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    threading.Timer(0.1, far.gate.set).start()
    it.close()
    assert far.begun == 2
    assert threads() == []
