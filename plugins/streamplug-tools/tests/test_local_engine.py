from __future__ import annotations

import sys
from multiprocessing import Pipe
from typing import ClassVar

import pytest
from streamplug_testing import EngineTests
from streamplug_tools import local_engine
from streamplug_tools.local_engine import Local
from streamplug_tools.tasks import pack_task

from streamplug.errors import WriterError


class TestLocal(EngineTests):
    name = "local"
    deaths = 2

    def make(self):
        return Local(2)


class TestHere(EngineTests):
    cls = Local
    mortal = False
    deviations: ClassVar = {"test_what_cannot_travel_is_refused": "nothing travels"}

    def make(self):
        return Local(0)


def test_an_interrupted_process_ends_without_a_traceback():
    def interrupt(number):
        raise KeyboardInterrupt

    ours, theirs = Pipe()
    with ours, theirs:
        ours.send(0)
        local_engine._serve(theirs, pack_task(interrupt))
        assert not ours.poll()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_task_that_exits_is_named(processes):
    def leave(number):
        sys.exit("no more data")

    with pytest.raises(
        WriterError, match=r"^part 3: it called sys.exit\('no more data'\): raise an"
    ):
        list(Local(processes).run(leave, [3]))
