from __future__ import annotations

from typing import ClassVar

from streamplug_testing import EngineTests
from streamplug_tools.local_engine import Local


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
