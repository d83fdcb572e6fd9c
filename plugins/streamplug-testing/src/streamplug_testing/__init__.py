"""Test kit for plugins: conformance tests for each plugin kind, fake storages, and plugin isolation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_testing.access import AccessTests
    from streamplug_testing.answers import AnswerTests
    from streamplug_testing.callback import CallbackTests
    from streamplug_testing.compression import CompressionTests
    from streamplug_testing.deviations import ConformanceBase
    from streamplug_testing.encoding import EncodingTests
    from streamplug_testing.engine import EngineTests
    from streamplug_testing.fakes import CountingStorage, FlakyStorage, LatencyStorage
    from streamplug_testing.format import FormatTests
    from streamplug_testing.isolation import isolated_plugins
    from streamplug_testing.order import OrderTests
    from streamplug_testing.plugin import PluginTests
    from streamplug_testing.shuffle import ShuffleTests
    from streamplug_testing.source import SourceTests
    from streamplug_testing.storage import StorageTests

_HOME = {
    "AccessTests": "access",
    "AnswerTests": "answers",
    "CallbackTests": "callback",
    "CompressionTests": "compression",
    "ConformanceBase": "deviations",
    "CountingStorage": "fakes",
    "EncodingTests": "encoding",
    "EngineTests": "engine",
    "FlakyStorage": "fakes",
    "FormatTests": "format",
    "LatencyStorage": "fakes",
    "OrderTests": "order",
    "PluginTests": "plugin",
    "ShuffleTests": "shuffle",
    "SourceTests": "source",
    "StorageTests": "storage",
    "isolated_plugins": "isolation",
}

__all__ = [
    "AccessTests",
    "AnswerTests",
    "CallbackTests",
    "CompressionTests",
    "ConformanceBase",
    "CountingStorage",
    "EncodingTests",
    "EngineTests",
    "FlakyStorage",
    "FormatTests",
    "LatencyStorage",
    "OrderTests",
    "PluginTests",
    "ShuffleTests",
    "SourceTests",
    "StorageTests",
    "isolated_plugins",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily, as the fakes do not need pytest.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
