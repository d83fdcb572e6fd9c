"""Names and values of a data set give no orders to the terminal."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter
from streamplug.cli.app import main
from streamplug.display.terminal import visible, visible_json

NAME = "a\x1b[31mred\x1b]0;title\x07\x9b1m\u202e"


def test_control_characters_become_escapes():
    assert visible("a\tb\nü ✓") == "a\tb\nü ✓"
    assert visible("\x1b[2J\r\x9b\u202e\ud800") == r"\x1b[2J\r\x9b\u202e\ud800"


@pytest.mark.parametrize(
    "text", ["a", "ü ✓", "\x7f\x1b[2J", "\x9b31m\u202e", "\ud800", "\ud83d\ude00"]
)
def test_json_with_escapes_has_the_same_value(text):
    shown = visible_json(json.dumps({text: text}, ensure_ascii=False))
    shown.encode()
    assert visible(shown) == shown
    value = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads(shown) == {value: value}


@pytest.mark.parametrize(
    "arguments", [["inspect"], ["inspect", "--samples", "1"], ["cat"], ["diff"], ["verify"]]
)
def test_no_command_prints_the_control_characters_of_a_data_set(tmp_path, arguments):
    pytest.importorskip("streamplug_tools")
    for folder in ("one", "other"):
        with MDSWriter(out=tmp_path / folder, columns={NAME: "str", "n": "int"}) as out:
            out.write({NAME: f"{NAME} {folder}", "n": 1})
    folders = [str(tmp_path / "one"), str(tmp_path / "other")][: 1 + (arguments == ["diff"])]
    shown = CliRunner().invoke(main, [*arguments, *folders])
    assert "\x1b" not in shown.output
    assert visible(shown.output) == shown.output
    escaped = r"a\u001b[31mred" if arguments == ["cat"] else r"a\x1b[31mred"
    assert arguments == ["verify"] or escaped in shown.output


def test_the_spinner_of_a_scan_shows_no_control_characters_of_names(tmp_path, monkeypatch):
    pytest.importorskip("streamplug_text")
    folder = tmp_path / "a\x1bred"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    texts = []
    monkeypatch.setattr("rich.status.Status.update", lambda _, text: texts.append(text.plain))
    CliRunner().invoke(main, ["index", "scan", str(folder), "--format", "jsonl"])
    assert any(r"a\x1bred" in text for text in texts)
    assert not any("\x1b" in text for text in texts)


@pytest.mark.parametrize("charset", ["ascii", "latin-1"])
def test_characters_that_the_locale_does_not_have_become_escapes(tmp_path, charset):
    pytest.importorskip("streamplug_tools")
    sample = {"ключ": "日本 ✓ \U0001f600", "n": 1}
    with MDSWriter(out=tmp_path, columns={"ключ": "str", "n": "int"}) as out:
        out.write(sample)
    runner = CliRunner(charset=charset)
    inspected = runner.invoke(main, ["inspect", str(tmp_path)])
    assert inspected.exit_code == 0, inspected.exception
    assert r"\u043a\u043b\u044e\u0447" in inspected.stdout
    printed = runner.invoke(main, ["cat", str(tmp_path)])
    assert printed.exit_code == 0, printed.exception
    assert json.loads(printed.stdout) == sample
    assert runner.invoke(main, ["cat", "--help"]).exit_code == 0
