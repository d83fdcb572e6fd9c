"""The types of all code are right, and the documentation builds without warnings, of words that are known.

They are tests so that others run where these leave a core idle. They need what `tox -e full` installs.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from streamplug_testing.scaffold import EXAMPLES, new_plugin

ROOT = Path(__file__).parents[2]


def need(distribution):
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: tox -e full")


def succeed(*command):
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_types_are_right(tmp_path):
    need("types-PyYAML")
    # In one process: the others of mypy might not be there in time on a busy machine.
    succeed(".ci/types", "--num-workers", "0")
    # What users' programs see of them, and what authors of plugins begin with: with the cache of the first.
    succeed("-m", "mypy", "tests/types/usage.py")
    made = [new_plugin(f"tiny-{kind}", kind, tmp_path) / "src" for kind in EXAMPLES]
    succeed("-m", "mypy", *made)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_documentation_is_built_without_warnings():
    need("sphinx")
    command = ["sphinx", "-W", "--keep-going", "-n", "-q", "-j", "auto", "-b", "html"]
    succeed("-m", *command, "docs", "docs/_build/html")


def test_all_words_are_known():
    need("pyspellchecker")
    succeed("docs/spelling.py")
