"""Test kit for plugins: conformance tests for each plugin kind, fake storages, and plugin isolation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if "pytest" in sys.modules:  # so that failed assertions show their values
    import pytest

    pytest.register_assert_rewrite(
        *(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[a-z]*.py"))
    )

if TYPE_CHECKING:
    from streamplug_testing.access import AccessTests as AccessTests
    from streamplug_testing.answers import AnswerTests as AnswerTests
    from streamplug_testing.callback import CallbackTests as CallbackTests
    from streamplug_testing.compression import CompressionTests as CompressionTests
    from streamplug_testing.deviations import ConformanceBase as ConformanceBase
    from streamplug_testing.encoding import EncodingTests as EncodingTests
    from streamplug_testing.engine import EngineTests as EngineTests
    from streamplug_testing.fakes import CountingStorage as CountingStorage
    from streamplug_testing.fakes import FlakyStorage as FlakyStorage
    from streamplug_testing.fakes import LatencyStorage as LatencyStorage
    from streamplug_testing.format import FormatTests as FormatTests
    from streamplug_testing.isolation import isolated_plugins as isolated_plugins
    from streamplug_testing.order import OrderTests as OrderTests
    from streamplug_testing.plugin import PluginTests as PluginTests
    from streamplug_testing.shuffle import ShuffleTests as ShuffleTests
    from streamplug_testing.source import SourceTests as SourceTests
    from streamplug_testing.storage import StorageTests as StorageTests
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "access": "AccessTests",
            "answers": "AnswerTests",
            "callback": "CallbackTests",
            "compression": "CompressionTests",
            "deviations": "ConformanceBase",
            "encoding": "EncodingTests",
            "engine": "EngineTests",
            "fakes": "CountingStorage FlakyStorage LatencyStorage",
            "format": "FormatTests",
            "isolation": "isolated_plugins",
            "order": "OrderTests",
            "plugin": "PluginTests",
            "shuffle": "ShuffleTests",
            "source": "SourceTests",
            "storage": "StorageTests",
        },
    )
