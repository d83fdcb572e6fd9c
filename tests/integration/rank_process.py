"""Runs a program as a rank, in a process of its own; the fixture `start_group` runs this file."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path


def be_rank(
    program: str, arguments: list[str], variables: dict[str, str], log: str, leash: int
) -> None:
    """Run a program with these arguments and environment variables.

    Args:
        program: Its file.
        arguments: What comes after its name.
        variables: What a launcher tells it, and more.
        log: Where what it prints goes.
        leash: Seconds after which it ends, whatever happens to the test.
    """
    os.setsid()  # its loader workers belong to it, to be killed with it
    signal.alarm(leash)
    with Path(log).open("ab", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(variables)
    sys.argv = [program, *arguments]
    tempfile.tempdir = None  # so that TMPDIR decides
    multiprocessing.current_process()._config.pop("tempdir", None)
    runpy.run_path(program, run_name="__main__")


be_rank(**globals()["TASK"])
