"""The orders of mosaicml-streaming, by the tests that outside authors have too."""

from __future__ import annotations

from typing import ClassVar

from streamplug_testing import OrderTests


class TestOrig(OrderTests):
    name = "orig"


class TestRelaxed(OrderTests):
    name = "relaxed"


class TestStratified(OrderTests):
    name = "orig"
    options: ClassVar = {"batching_method": "stratified"}
    samples = (160, 160)
    deviations: ClassVar = {
        "test_streams_are_read_by_their_weights": "what does not fill a global batch is left out"
    }


class TestPerStream(OrderTests):
    name = "relaxed"
    options: ClassVar = {"batching_method": "per_stream"}
    samples = (160, 120)  # what does not fill a batch of a stream is left out


class TestDevicePerStream(OrderTests):
    name = "orig"
    options: ClassVar = {"batching_method": "device_per_stream"}
    samples = (160, 96)
