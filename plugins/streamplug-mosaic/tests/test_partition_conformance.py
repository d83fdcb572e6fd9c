from __future__ import annotations

from streamplug_testing import PartitionTests


class TestOrig(PartitionTests):
    name = "orig"


class TestRelaxed(PartitionTests):
    name = "relaxed"
