"""The orders of this distribution, by the tests that outside authors have too."""

from __future__ import annotations

from streamplug_testing import OrderTests


class TestPerStream(OrderTests):
    name = "per_stream"


class TestStratified(OrderTests):
    name = "stratified"


class TestDevicePerStream(OrderTests):
    name = "device_per_stream"
