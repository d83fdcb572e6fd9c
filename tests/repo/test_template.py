"""What plugins/_template renders is a distribution that works as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RENDER = ROOT / "plugins" / "_template" / "render.py"


def run(*command, **environment):
    # Nothing of the developer's own settings for streamplug or pytest.
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("STREAMPLUG_", "PYTEST_"))
    }
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def succeed(*command, **environment):
    result = run(*command, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    return Path(succeed(RENDER, "trace-id", tmp_path_factory.mktemp("rendered")).strip())


@pytest.fixture(scope="module")
def installed(rendered, tmp_path_factory):
    target = tmp_path_factory.mktemp("installed")
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    succeed(*command, "--no-build-isolation", "--target", target, rendered)
    return target


def test_its_own_tests_pass(rendered, installed):
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", rendered]
    shown = succeed(*command, rendered / "tests", PYTHONPATH=str(installed))
    assert "passed" in shown
    assert "failed" not in shown


def test_its_encoding_is_found_by_name(installed):
    code = (
        "from uuid import UUID; from streamplug.plugin import make; e = make('encoding', 'trace-id')"
        "; print(type(e).__module__, e.decode(memoryview(e.encode(UUID(int=7)))))"
    )
    assert succeed("-c", code, PYTHONPATH=str(installed)) == (
        "streamplug_trace_id.encoding 00000000-0000-0000-0000-000000000007\n"
    )


def test_it_is_listed(installed):
    code = "from streamplug.cli import main; main()"
    shown = succeed("-c", code, "plugins", "--json", "--check", PYTHONPATH=str(installed))
    assert [f for f in json.loads(shown) if f["distribution"] == "streamplug-trace-id"] == [
        {
            "kind": "encoding",
            "name": "trace-id",
            "distribution": "streamplug-trace-id",
            "version": "0.1.0",
            "target": "streamplug_trace_id.encoding:TraceId",
            "status": "ok",
            "reason": "",
        }
    ]


def test_it_keeps_to_the_rules_of_the_code(rendered):
    pytest.importorskip("ruff")
    pytest.importorskip("mypy")
    settings = ROOT / "pyproject.toml"
    succeed("-m", "ruff", "check", "--no-cache", "--config", settings, rendered / "src")
    succeed("-m", "ruff", "format", "--check", "--no-cache", "--config", settings, rendered)
    succeed("-m", "mypy", "--config-file", settings, "--cache-dir", os.devnull, rendered / "src")


def test_its_metadata_is_that_of_our_own(tmp_path):
    def varying(line):
        return line.startswith(("description = ", "dependencies = "))

    folder = Path(succeed(RENDER, "msgpack", tmp_path).strip())
    ours = (ROOT / "plugins" / "streamplug-msgpack" / "pyproject.toml").read_text().splitlines()
    made = (folder / "pyproject.toml").read_text().splitlines()
    assert [x for x in made if not varying(x)] == [x for x in ours if not varying(x)]


@pytest.mark.parametrize("name", ["", "Upper", "9lives", "a b", "../x"])
def test_a_malformed_name_is_refused(tmp_path, name):
    result = run(RENDER, name, tmp_path)
    assert result.returncode == 1
    assert "use lower-case letters, digits, - and _" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    succeed(RENDER, "x", tmp_path)
    assert "FileExistsError" in run(RENDER, "x", tmp_path).stderr
