"""The commands that the documentation shows print what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from streamplug.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "commands.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_commands_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    made = next(text for kind, text in blocks if kind == "python")
    exec(compile(made, str(PAGE), "exec"), {})
    seen = 0
    for kind, text in blocks:
        for shown in text.split("$ ")[1:] if kind == "console" else ():
            command, _, expected = shown.partition("\n")
            program, *arguments = shlex.split(command)
            result = CliRunner().invoke(main, arguments)
            assert program == "streamplug"
            assert result.stderr == ""
            printed = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
            assert _seen(printed.replace(str(tmp_path), "/data")) == _seen(expected), command
            seen += 1
    assert seen > 10


def _seen(text):
    """Return a text without the sizes of sets, which differ between versions of zlib."""
    return re.sub(r"[0-9,]+ bytes$", "", text, flags=re.MULTILINE)
