"""Commands on data sets whose encodings are registered in code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from base64 import b64decode

import pytest

MODULE = """
from streamplug.interfaces import Encoding
from streamplug.plugin import register_encoding


@register_encoding("reversed")
class Reversed(Encoding):
    def encode(self, value):
        return value[::-1].encode()

    def decode(self, data):
        return bytes(data).decode()[::-1]
"""

WRITE = """
import reversals
from streamplug import Writer

with Writer(columns={"text": "reversed"}, out="source", size_limit=300) as writer:
    for n in range(100):
        writer.write({"text": f"text {n}"})
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "reversals.py").write_text(textwrap.dedent(MODULE))

    def run(*arguments):
        return subprocess.run(
            [*arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=dict(os.environ),
        )

    (tmp_path / "write.py").write_text(textwrap.dedent(WRITE))
    assert run(sys.executable, "write.py").returncode == 0
    # As a program, whose path has no working directory.
    command = "import sys; sys.path[:] = [p for p in sys.path if p]; from streamplug.cli import main; main()"
    return lambda *arguments: run(sys.executable, "-c", command, *arguments)


def test_a_module_is_imported_first(run):
    refused = run("cat", "source")
    assert refused.returncode == 2
    assert "reversed" in refused.stderr
    shown = run("cat", "source", "--end", "2", "--import", "reversals")
    # As bytes, since nothing says that the values of the encoding have a form in JSON.
    texts = [json.loads(line)["text"]["base64"] for line in shown.stdout.splitlines()]
    assert [b64decode(text) for text in texts] == [b"0 txet", b"1 txet"]


def test_processes_of_a_command_know_what_is_registered(run):
    options = ["--columns", "text:str", "--processes", "2", "--import", "reversals"]
    done = run("convert", "source", "out", *options)
    assert done.returncode == 0, done.stderr
    shown = run("cat", "out", "--begin", "-1")
    assert shown.stdout == '{"text": "text 99"}\n'


def test_a_module_that_is_missing_is_named(run):
    refused = run("cat", "source", "--import", "nonsense")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --import nonsense: ModuleNotFoundError: ")
