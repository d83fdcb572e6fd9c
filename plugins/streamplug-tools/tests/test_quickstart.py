"""The quickstart as a user runs it, and that its checks are no formality."""

from __future__ import annotations

import getpass
import importlib
import json
import os
import subprocess

import pytest
from click.testing import CliRunner
from rich.console import Console

from streamplug.cli import main
from streamplug.errors import StreamplugError
from streamplug.transfer import try_directory_lock
from tests import warm_python

# The package of the commands holds the command of that name, too.
quickstart = importlib.import_module("streamplug_tools.commands.quickstart")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run(["-m", "streamplug", "quickstart", *arguments])


@pytest.mark.parametrize("options", [[], ["--clean"]])
def test_two_at_once_are_refused(tmp_path, options):
    home = tmp_path / "set"
    home.mkdir()
    with try_directory_lock(home) as alone:
        assert alone
        done = run("--out", str(home), *options)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {home} is being written by another quickstart: wait for its end, or name another directory "
        "by --out\n"
    )
    assert list(home.iterdir()) == []


def test_it_writes_streams_and_checks_a_real_set(tmp_path):
    done = run("--out", str(tmp_path / "set"), "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["samples"] == results["files"] - results["not_utf8"] > 100
    assert results["shards"] > 1
    filled = results["repeated_to_fill_the_last_batch"]
    assert results["global_batches"] * 32 == results["samples"] + filled
    assert results["worlds"] == [1, 2, 4, 8]
    assert (tmp_path / "set/data/index.json").exists()
    assert results["some_samples"][0]["module"] == "__future__"


def test_it_prints_what_to_write_next_and_where_the_set_lies(tmp_path, monkeypatch):
    out = tmp_path / "set[" / "a]"
    files = quickstart.source_files()[:150]  # the test above reads all of them
    monkeypatch.setattr(quickstart, "source_files", lambda: files)
    done = CliRunner().invoke(main, ["quickstart", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "each sample once" in done.stdout
    assert f'remote="{out}/data"' in done.stdout
    assert "StreamingDataLoader(dataset, batch_size=32, num_workers=2)" in done.stdout
    assert f"streamplug quickstart --out '{out}' --clean removes it" in done.stdout
    cleaned = CliRunner().invoke(main, ["quickstart", "--out", str(out), "--clean"])
    assert cleaned.exit_code == 0, cleaned.output
    assert not out.exists()


def test_it_does_not_write_over_what_is_there(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/precious").write_text("x")
    result = CliRunner().invoke(main, ["quickstart", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.output
    result = CliRunner().invoke(main, ["quickstart", "--out", str(tmp_path), "--clean"])
    assert result.exit_code == 2
    assert "remove it yourself" in result.output
    assert (tmp_path / "data/precious").read_text() == "x"


def test_a_directory_that_cannot_be_created_is_told(tmp_path):
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main, ["quickstart", "--out", str(tmp_path / "file/inside")])
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {tmp_path}/file/inside: Not a directory; ")


def test_clean_prints_json(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/shard").write_bytes(bytes(70))
    (tmp_path / quickstart.MARKER_NAME).touch()
    for num_bytes in (70, 0):
        arguments = ["quickstart", "--out", str(tmp_path), "--clean", "--json"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        expected = {"directory": str(tmp_path), "removed_bytes": num_bytes}
        assert json.loads(result.stdout) == expected


@pytest.mark.parametrize("name", ["data/index.json", "cache/precious"])
def test_clean_removes_nothing_that_quickstart_did_not_write(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text('{"shards": []}')
    result = CliRunner().invoke(main, ["quickstart", "--out", str(tmp_path), "--clean"])
    assert result.exit_code == 2
    assert f"{path.parent}: quickstart did not write it" in result.output
    assert path.exists()


def test_a_directory_that_others_may_have_prepared_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "mine" / "quickstart" / "cache").mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary" / f"streamplug-{os.getuid()}").symlink_to(tmp_path / "mine")
    (tmp_path / "temporary" / f"streamplug-quickstart-{getpass.getuser()}").symlink_to(
        tmp_path / "mine" / "quickstart"
    )
    result = CliRunner().invoke(main, ["quickstart"])
    assert result.exit_code == 2
    assert (tmp_path / "mine" / "quickstart" / "cache").exists()


def test_it_notices_when_worlds_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "epoch", lambda folder, cache, ranks: [[str(ranks)]])
    with pytest.raises(StreamplugError, match="order on 2 ranks differs"):
        quickstart.check_worlds(tmp_path, tmp_path, Console(quiet=True))
