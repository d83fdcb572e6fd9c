"""Programs written for mosaicml-streaming, run as they are: ``import streaming`` gives what is here.

Either the program itself begins with ``import streamplug.compat; streamplug.compat.install()``, or it is run
by ``python -m streamplug.compat program.py``. ``python -m streamplug.compat --list`` says what differs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from streamplug.errors import ConfigError

__all__ = ["install"]

VERSION = "0.13.0"
"""The version of mosaicml-streaming whose names these are."""

_TEXT_WRITERS = ("CSVWriter", "JSONWriter", "TSVWriter", "XSVWriter")
_MDS_CODING = (
    *("get_mds_encoded_size", "get_mds_encodings", "is_mds_encoding", "is_mds_encoding_safe"),
    *("mds_decode", "mds_encode"),
)
_COMPRESSING = (
    *("compress", "decompress", "get_compression_extension", "get_compressions", "is_compression"),
)
_HASHING = ("get_hash", "get_hashes", "is_hash")
_SHUFFLES = ("naive", "py1br", "py1e", "py1s", "py2s")
_SHUFFLING = ("get_shuffle", *(f"get_shuffle_{name}" for name in _SHUFFLES))
_RANKS = (
    *("all_gather", "all_gather_object", "barrier", "broadcast", "get_local_rank"),
    *("get_local_world_size", "get_rank", "get_world_size", "maybe_init_dist"),
)
_PARSING = ("bytes_to_int", "number_abbrev_to_int")
_HELPING = (
    *("clean_stale_shared_memory", "get_list_arg", "merge_index", "retry"),
    "wait_for_file_to_exist",
)
_TEXT = ("StreamingC4", "StreamingEnWiki", "StreamingPile")
_VISION = ("StreamingADE20K", "StreamingCIFAR10", "StreamingCOCO", "StreamingImageNet")
_VIDEO = ("StreamingInsideWebVid", "StreamingOutsideDTWebVid", "StreamingOutsideGIWebVid")

_DATA = ("LocalDataset", "Stream", "StreamingDataLoader", "StreamingDataset")
_WRITERS = ("CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter")

MODULES = {
    "streaming": (*_DATA, *_WRITERS),
    "streaming.base": (*_DATA, *_WRITERS),
    "streaming.base.batching": ("generate_work",),
    "streaming.base.compression": _COMPRESSING,
    "streaming.base.converters": ("dataframe_to_mds",),
    "streaming.base.dataloader": ("StreamingDataLoader",),
    "streaming.base.dataset": ("StreamingDataset",),
    "streaming.base.distributed": _RANKS,
    "streaming.base.format": (*_WRITERS, "get_index_basename"),
    "streaming.base.format.index": ("get_index_basename",),
    "streaming.base.format.json": ("JSONWriter",),
    "streaming.base.format.mds": ("MDSWriter",),
    "streaming.base.format.mds.encodings": _MDS_CODING,
    "streaming.base.format.xsv": ("CSVWriter", "TSVWriter", "XSVWriter"),
    "streaming.base.hashing": _HASHING,
    "streaming.base.local": ("LocalDataset",),
    "streaming.base.partition": ("get_partitions",),
    "streaming.base.sampling": ("get_sampling",),
    "streaming.base.shuffle": _SHUFFLING,
    "streaming.base.stream": ("Stream",),
    "streaming.base.util": (*_PARSING, *_HELPING),
    "streaming.base.world": ("World",),
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

HOMES = {
    "coding": (*_COMPRESSING, *_HASHING, *_MDS_CODING, "get_index_basename"),
    "dataset": ("LocalDataset", "StreamingDataset"),
    "distributed": _RANKS,
    "loader": ("StreamingDataLoader",),
    "ordering": ("generate_work", "get_partitions", "get_sampling", *_SHUFFLING),
    "sizes": _PARSING,
    "streams": ("Stream",),
    "util": _HELPING,
    "world": ("World",),
    "writers": ("MDSWriter", *_TEXT_WRITERS),
}
"""The module here that has each name; those of no module are of plugins."""


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
    if not any(isinstance(finder, _Missing) for finder in sys.meta_path):
        sys.meta_path.append(_Missing())


class _Missing(MetaPathFinder):
    """Says of a module of mosaicml-streaming that is not here what to use instead."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Refuse a module of mosaicml-streaming; leave all others to whoever knows them.

        Raises:
            ModuleNotFoundError: If it is one.
        """
        if fullname.startswith("streaming.") and isinstance(sys.modules.get("streaming"), _Module):
            from streamplug.compat.differences import instead_of

            # Without a name, lest `from streaming.base import x` takes it for a missing attribute.
            raise ModuleNotFoundError(
                f"{fullname}: streamplug.compat has no such name; use {instead_of(fullname)}"
            )


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
            from streamplug.compat.differences import instead_of

            raise AttributeError(
                f"{self.__name__}.{name}: streamplug.compat has no such name; it has "
                f"{', '.join(self.__all__)}. Use {instead_of(f'{self.__name__}.{name}')}"
            )
        value = getattr(import_module("streamplug.compat.names"), name)
        setattr(self, name, value)
        return value
