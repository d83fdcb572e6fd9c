"""Tar files of samples (WebDataset) for streamplug."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_webdataset.compat import (
        DataPipeline,
        ResampledShards,
        SimpleShardList,
        WebDataset,
        single_node_only,
        split_by_node,
        split_by_worker,
        tarfile_to_samples,
    )
    from streamplug_webdataset.decoding import Continue, gzfilter, handle_extension, imagehandler
    from streamplug_webdataset.filters import (
        associate,
        batched,
        decode,
        detshuffle,
        extract_keys,
        listed,
        log_keys,
        map,  # noqa: A004 - the word that users know
        map_dict,
        map_tuple,
        pipelinefilter,
        rename,
        rename_keys,
        rsample,
        select,
        shuffle,
        slice,  # noqa: A004 - the word that users know
        to_tuple,
        unbatched,
        unlisted,
    )
    from streamplug_webdataset.handlers import (
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )
    from streamplug_webdataset.loader import WebLoader
    from streamplug_webdataset.tarwriter import ShardWriter, TarWriter
    from streamplug_webdataset.writer import WebDatasetWriter

_HOMES = {
    "compat": (
        "DataPipeline",
        "ResampledShards",
        "SimpleShardList",
        "WebDataset",
        "single_node_only",
        "split_by_node",
        "split_by_worker",
        "tarfile_to_samples",
    ),
    "decoding": ("Continue", "gzfilter", "handle_extension", "imagehandler"),
    "filters": (
        "associate",
        "batched",
        "decode",
        "detshuffle",
        "extract_keys",
        "listed",
        "log_keys",
        "map",
        "map_dict",
        "map_tuple",
        "pipelinefilter",
        "rename",
        "rename_keys",
        "rsample",
        "select",
        "shuffle",
        "slice",
        "to_tuple",
        "unbatched",
        "unlisted",
    ),
    "handlers": (
        "ignore_and_continue",
        "ignore_and_stop",
        "reraise_exception",
        "warn_and_continue",
        "warn_and_stop",
    ),
    "loader": ("WebLoader",),
    "tarwriter": ("ShardWriter", "TarWriter"),
    "writer": ("WebDatasetWriter",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Continue",
    "DataPipeline",
    "ResampledShards",
    "ShardWriter",
    "SimpleShardList",
    "TarWriter",
    "WebDataset",
    "WebDatasetWriter",
    "WebLoader",
    "associate",
    "batched",
    "decode",
    "detshuffle",
    "extract_keys",
    "gzfilter",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "listed",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "pipelinefilter",
    "rename",
    "rename_keys",
    "reraise_exception",
    "rsample",
    "select",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_to_samples",
    "to_tuple",
    "unbatched",
    "unlisted",
    "warn_and_continue",
    "warn_and_stop",
]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        # Imported when it is used: looking for plugins imports this package.
        if name == "WebLoader" and find_spec("torch") is None:
            raise ImportError(
                "WebLoader is a loader of torch, which is not installed: pip install torch; without "
                "it, iterate over the pipeline"
            )
        if name in _HOME:
            return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
