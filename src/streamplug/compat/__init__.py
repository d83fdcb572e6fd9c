"""Programs written for mosaicml-streaming, run as they are: ``import streaming`` gives what is here.

Either the program itself begins with ``import streamplug.compat; streamplug.compat.install()``, or it is run
by ``python -m streamplug.compat program.py``. ``python -m streamplug.compat --list`` says what differs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from streamplug.errors import ConfigError

__all__ = ["install"]

VERSION = "0.13.0"
"""The version of mosaicml-streaming whose names these are."""

_READING = ("LocalDataset", "Stream", "StreamingDataLoader", "StreamingDataset")
_WRITING = ("CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter")
_UTIL = ("bytes_to_int", "clean_stale_shared_memory", "merge_index", "number_abbrev_to_int")
_TEXT = ("StreamingC4", "StreamingEnWiki", "StreamingPile")
_VISION = ("StreamingADE20K", "StreamingCIFAR10", "StreamingCOCO", "StreamingImageNet")
_VIDEO = ("StreamingInsideWebVid", "StreamingOutsideDTWebVid", "StreamingOutsideGIWebVid")

MODULES = {
    "streaming": (*_READING, *_WRITING),
    "streaming.base": (*_READING, *_WRITING),
    "streaming.base.converters": ("dataframe_to_mds",),
    "streaming.base.dataloader": ("StreamingDataLoader",),
    "streaming.base.dataset": ("StreamingDataset",),
    "streaming.base.format": _WRITING,
    "streaming.base.format.mds": ("MDSWriter",),
    "streaming.base.local": ("LocalDataset",),
    "streaming.base.stream": ("Stream",),
    "streaming.base.util": _UTIL,
    "streaming.multimodal": _VIDEO,
    "streaming.multimodal.webvid": _VIDEO,
    "streaming.text": _TEXT,
    "streaming.text.c4": ("StreamingC4",),
    "streaming.text.enwiki": ("StreamingEnWiki",),
    "streaming.text.pile": ("StreamingPile",),
    "streaming.vision": _VISION,
    "streaming.vision.ade20k": ("StreamingADE20K",),
    "streaming.vision.cifar10": ("StreamingCIFAR10",),
    "streaming.vision.coco": ("StreamingCOCO",),
    "streaming.vision.imagenet": ("StreamingImageNet",),
}
"""The modules that there are, and the names of each."""


def install() -> None:
    """Make ``import streaming`` give what is here, in this process and those forked from it.

    Raises:
        ConfigError: If mosaicml-streaming itself has been imported already.
    """
    found = sys.modules.get("streaming")
    if isinstance(found, _Module):
        return
    if found is not None:
        raise ConfigError(
            "mosaicml-streaming has been imported already: call streamplug.compat.install() before"
        )
    made = {name: _Module(name, names) for name, names in MODULES.items()}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    sys.modules.update(made)


class _Module(ModuleType):
    """A module whose names are imported when they are first used."""

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        super().__init__(name, f"{name} of mosaicml-streaming, as streamplug has it.")
        self.__path__: list[str] = []  # a package, of which there is no more than what is installed
        self.__all__ = list(names)
        if name == "streaming":
            self.__version__ = VERSION

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name not in self.__all__:
            raise AttributeError(
                f"{self.__name__}.{name}: streamplug.compat has no such name; it has "
                f"{', '.join(self.__all__)}"
            )
        value = getattr(import_module("streamplug.compat.names"), name)
        setattr(self, name, value)
        return value
