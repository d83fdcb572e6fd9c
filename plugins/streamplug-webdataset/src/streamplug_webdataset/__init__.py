"""Tar files of samples (WebDataset) for streamplug."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_webdataset.writer import WebDatasetWriter

__all__ = ["WebDatasetWriter"]


def __getattr__(name: str) -> Any:
    # Imported when it is used: looking for plugins imports this package.
    if name == "WebDatasetWriter":
        return import_module("streamplug_webdataset.writer").WebDatasetWriter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
