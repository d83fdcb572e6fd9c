"""mosaicml-streaming on streamplug: its orders bit for bit, and its names.

``from streamplug_mosaic import StreamingDataset`` replaces ``from streaming import StreamingDataset``, and
``streamplug_mosaic.base.util`` replaces ``streaming.base.util``. Programs run unchanged by ``python -m
streamplug_mosaic program.py``, or after `install()`.
"""

from __future__ import annotations

from typing import Any

from streamplug_mosaic.alias import (
    explain_missing_modules,
    find_name,
    install,
    make_modules,
    register_modules,
)
from streamplug_mosaic.names import MODULES

__all__ = ["install"]

register_modules(make_modules(__name__))
explain_missing_modules()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in MODULES.items() if name in names), "streaming")
    value = globals()[name] = find_name(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES["streaming"]})
