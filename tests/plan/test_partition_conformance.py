from __future__ import annotations

from streamplug_testing import PartitionTests


class TestElastic(PartitionTests):
    name = "elastic"
