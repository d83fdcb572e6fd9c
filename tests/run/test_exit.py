"""Programs that end while loops are alive say nothing of it."""

from __future__ import annotations

import os
import signal

import pytest

from streamplug import MDSWriter
from tests.warm_python import CORE, Program

PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for programs in the background
from streamplug.dataset import StreamingDataset
from streamplug.interfaces import Callback

class Silent(Callback):
    def on_event(self, event, world):
        pass

def main():
    global loop
    place = {"remote": sys.argv[1], "local": sys.argv[2]} if sys.argv[2] else {"local": sys.argv[1]}
    data = StreamingDataset(batch_size=4, callbacks=[Silent()], **place)
    loop = LOOP
    next(loop), next(loop)  # of two workers: all have started
    KEEP
    print("ready", flush=True)
    WAIT

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
"""
LOOPS = {
    "samples": "iter(data)",
    "batches": "data.batches()",
    "threads": "data.batches(num_threads=2)",
    "generators": "data.samples_with_rng()",
}
KEEP = {"as a variable": "pass", "in a module": "import numpy; numpy.loop = loop; del loop"}
WAIT = {"by itself": "pass", "by Ctrl-C": "for _ in range(900): time.sleep(0.1)"}
"""Short sleeps: a signal that another thread takes does not interrupt that of the main thread."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, size_limit=200) as writer:
        writer.write_batch({"n": list(range(1000))})
    return str(out)


def run(program: str, *arguments: str, interrupt: bool, modules: tuple[str, ...] = CORE) -> str:
    """Return what a program writes to its standard error; Ctrl-C is for all of its processes."""
    with Program(["-c", program, *arguments], modules) as running:
        assert running.stdout.readline() == "ready\n"
        if interrupt:
            os.killpg(running.pid, signal.SIGINT)
        ended = running.finish()
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("end", WAIT)
@pytest.mark.parametrize("keep", KEEP)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("remote", [False, True])
def test_a_program_that_ends_with_a_loop_alive_is_silent(folder, tmp_path, remote, loop, keep, end):
    program = PROGRAM.replace("LOOP", LOOPS[loop]).replace("KEEP", KEEP[keep])
    program = program.replace("WAIT", WAIT[end])
    cache = str(tmp_path) if remote else ""
    assert run(program, folder, cache, interrupt=end == "by Ctrl-C") == ""


def test_the_end_of_a_loop_that_is_alive_is_told_to_callbacks(folder):
    program = PROGRAM.replace("LOOP", LOOPS["batches"]).replace("KEEP", KEEP["in a module"])
    program = program.replace("WAIT", "pass")
    told = program.replace("        pass\n\ndef", "        print(event, file=sys.stderr)\n\ndef")
    assert "EpochEnded(epoch=0, complete=False)" in run(told, folder, "", interrupt=False)
