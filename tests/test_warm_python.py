from __future__ import annotations

import os
import signal

import pytest

from tests.warm_python import Program, run

PROGRAM = """
import atexit, os, sys, threading, time
from pathlib import Path

class Main:
    pass

def late():
    time.sleep(0.1)
    print("thread")

atexit.register(print, "end")
threading.Thread(target=late).start()
print(__name__, Main.__module__, sys.argv[1:], Path.cwd().name, os.environ["X"], sys.path[1])
"""
PRINTED = "__main__ __main__ ['a', 'b'] there /other\nthread\nend\n".replace("there", "{} 1")


@pytest.mark.parametrize("as_script", [True, False])
def test_a_program_runs_as_in_an_interpreter_of_its_own(tmp_path, as_script):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["program.py"] if as_script else ["-c", PROGRAM]
    environment = {**os.environ, "X": "1", "PYTHONPATH": "/other"}
    done = run([*command, "a", "b"], cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == PRINTED.format(tmp_path.name)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("int('x')", 1, "ValueError: invalid literal for int() with base 10: 'x'\n"),
        ("import warnings; warnings.warn('w', stacklevel=1)", 1, "UserWarning: w\n"),
    ],
)
def test_its_end_is_that_of_the_program(code, status, error):
    done = run(["-W", "error", "-c", code])
    assert done.returncode == status
    assert done.stderr.endswith(error)


def test_it_is_interrupted():
    code = "import time\nprint('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    with Program(["-c", code]) as program:
        assert program.stdout.readline() == "ready\n"
        os.killpg(program.pid, signal.SIGINT)
        assert program.finish().returncode == -signal.SIGINT


def test_a_module_is_run():
    assert run(["-m", "streamplug", "--version"]).stdout.startswith("streamplug, version ")
