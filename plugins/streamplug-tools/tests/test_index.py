from __future__ import annotations

import pytest
from click.testing import CliRunner
from streamplug_tools.index_writer import scan_index

from streamplug.cli import main
from streamplug.errors import OutputExistsError


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


def test_a_file_beside_the_data_is_replaced_only_with_force(tmp_path):
    pytest.importorskip("streamplug_text")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "a.jsonl.meta").write_text("notes")
    with pytest.raises(OutputExistsError, match=r"a\.jsonl\.meta exists; move it"):
        scan_index(str(tmp_path), "jsonl")
    assert (tmp_path / "a.jsonl.meta").read_text() == "notes"
    scan_index(str(tmp_path), "jsonl", exist_ok=True)
    (tmp_path / "index.json").unlink()
    assert scan_index(str(tmp_path), "jsonl").samples == 1  # its own file is there
