"""A cluster of two executors, each a process of its own, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: tox -c tests -e engines")

from streamplug_files import PLAN_NAME
from streamplug_tools.partitioned import write_parts

PROGRAM = Path(__file__).with_name("lost_executor.py")


def content(folder):
    """Return the files, but for the plan, which has the function, and those of an attempt that is lost."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    names = (name for name in sorted(files) if name[0] != "." and name != PLAN_NAME)
    return {name: files[name].read_bytes() for name in names}


def samples(part):
    for n in range(500 * part, 500 * part + 500):
        yield {"n": n}


def test_an_executor_that_is_lost_is_replaced(tmp_path):
    """Its Python process outlives it, and goes on to write the same part as the one that replaces it."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "killed").exists()
    options = {"columns": {"n": "int"}, "size_limit": "1kb", "hashes": ["sha1"]}
    write_parts(samples, range(6), out=tmp_path / "undisturbed", processes=0, **options)
    assert content(tmp_path / "set") == content(tmp_path / "undisturbed")
