"""Names and values of a data set give no orders to the terminal."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter
from streamplug.cli.app import main
from streamplug.display.terminal import visible

NAME = "a\x1b[31mred\x1b]0;title\x07"


def test_control_characters_become_escapes():
    assert visible("a\tb\nü ✓") == "a\tb\nü ✓"
    assert visible("\x1b[2J\r\x9b\u202e\ud800") == r"\x1b[2J\r\x9b\u202e\ud800"


@pytest.mark.parametrize(
    "arguments", [["inspect"], ["inspect", "--samples", "1"], ["diff"], ["verify"]]
)
def test_no_command_prints_the_control_characters_of_a_data_set(tmp_path, arguments):
    pytest.importorskip("streamplug_tools")
    for folder in ("one", "other"):
        with MDSWriter(out=tmp_path / folder, columns={NAME: "str", "n": "int"}) as out:
            out.write({NAME: f"{NAME} {folder}", "n": 1})
    folders = [str(tmp_path / "one"), str(tmp_path / "other")][: 1 + (arguments == ["diff"])]
    shown = CliRunner().invoke(main, [*arguments, *folders])
    assert "\x1b" not in shown.output
    assert "\x07" not in shown.output
    assert arguments == ["verify"] or r"a\x1b[31mred" in shown.output
