"""The built-in order, by the tests that outside authors have too."""

from __future__ import annotations

from streamplug_testing import OrderTests


class TestRandom(OrderTests):
    name = "random"
