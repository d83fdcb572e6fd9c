from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamplug.errors import AccessDenied, StorageError
from streamplug.transfer.tempdir import TemporaryDirectory

HOLD = """
import sys
from streamplug.transfer.tempdir import TemporaryDirectory

held = TemporaryDirectory()
(held.path / "file").write_text("x")
print(held.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_nothing_stays(place):
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        (first / "file").write_text("x")
        assert first.parent == second.parent
        assert first != second
    assert list(place.glob("*/*")) == []


def test_an_error_says_how_to_choose_a_place_if_there_is_none(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/missing/directory"])
    with pytest.raises(StorageError, match=r"No usable temporary directory.*; set TMPDIR to"):
        TemporaryDirectory()


def test_it_may_be_closed_twice(place):
    directory = TemporaryDirectory()
    directory.close()
    directory.close()
    assert not directory.path.exists()


def test_a_forked_child_does_not_remove_that_of_its_parent(place):
    directory = TemporaryDirectory()
    child = multiprocessing.get_context("fork").Process(target=directory.close)
    child.start()
    child.join()
    assert child.exitcode == 0
    with TemporaryDirectory():  # which removes those of dead processes
        assert directory.path.is_dir()
    directory.close()
    assert list(place.glob("*/*")) == []


def test_that_of_a_killed_process_goes_and_that_of_a_living_one_stays(place):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        held = process.stdout.readline().strip()
        with TemporaryDirectory() as other:
            assert sorted(path.name for path in other.parent.glob("*") if path.is_dir()) == sorted(
                [held.rpartition("/")[2], other.name]
            )
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    with TemporaryDirectory():
        assert not list(place.glob(f"*/{held.rpartition('/')[2]}*"))
    assert list(place.glob("*/*")) == []


def test_what_is_written_after_the_owner_has_ended_goes(place):
    with TemporaryDirectory() as first:
        (first.parent / "kept").mkdir()
    (first / "1").mkdir(parents=True)
    with TemporaryDirectory() as second:
        assert {path.stem for path in second.parent.iterdir()} == {second.name, "kept"}


def test_a_place_that_somebody_else_has_made_is_refused(place, tmp_path_factory, monkeypatch):
    with TemporaryDirectory() as mine:
        home = mine.parent
    home.rmdir()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    home.symlink_to(elsewhere)
    with pytest.raises(AccessDenied, match=r"nobody else can write to.*TMPDIR"):
        TemporaryDirectory()
    assert list(elsewhere.iterdir()) == []
    home.unlink()
    home.mkdir(mode=0o700)
    uid = home.stat().st_uid
    monkeypatch.setattr("streamplug.transfer.tempdir.temp_root", lambda: home)
    monkeypatch.setattr("os.getuid", lambda: uid + 1)
    with pytest.raises(AccessDenied, match="nobody else can write to"):
        TemporaryDirectory()
    assert list(home.iterdir()) == []


def test_a_place_of_ours_that_others_could_write_to_is_closed_to_them(place):
    with TemporaryDirectory() as first:
        first.parent.chmod(0o777)
        with TemporaryDirectory() as second:
            assert second.parent.stat().st_mode & 0o777 == 0o700


def test_directories_that_are_made_at_once_stay(place):
    """A directory must not be removed as stale by those who look for stale ones while it is made."""

    def use(_):
        for _ in range(60):
            with TemporaryDirectory() as path:
                (path / "file").write_bytes(b"")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(16)))
    assert list(place.glob("*/*")) == []
