from __future__ import annotations

from click.testing import CliRunner

from streamplug.cli import main


def run(*arguments: str):
    return CliRunner().invoke(main, ["index", *arguments])


def test_another_action_is_refused(tmp_path):
    assert run("mend", str(tmp_path), "--format", "mds").exit_code == 2


def test_an_error_names_the_option_that_replaces_an_index(tmp_path):
    (tmp_path / "index.json").write_text("{}")
    result = run("scan", str(tmp_path), "--format", "jsonl")
    assert result.exit_code == 2
    assert result.stderr.endswith("index.json exists; pass --force to replace it\n")


def test_scan_needs_a_format(tmp_path):
    result = run("scan", str(tmp_path))
    assert result.exit_code == 2
    assert "--format" in result.stderr
