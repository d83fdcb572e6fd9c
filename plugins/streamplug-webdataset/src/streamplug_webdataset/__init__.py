"""Tar files of samples (WebDataset) for streamplug."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_webdataset.arrays import (
        numpy_dumps,
    )
    from streamplug_webdataset.compat import (
        DataPipeline,
        WebDataset,
    )
    from streamplug_webdataset.container_encodings import (
        torch_dumps,
        torch_loads,
    )
    from streamplug_webdataset.decoding import (
        Continue,
        Decoder,
        DecodingError,
        gzfilter,
        handle_extension,
        imagehandler,
    )
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
    from streamplug_webdataset.iterable import (
        FluidWrapper,
        IterablePipeline,
    )
    from streamplug_webdataset.loader import (
        WebLoader,
    )
    from streamplug_webdataset.mix import (
        MockDataset,
        RandomMix,
        RoundRobin,
    )
    from streamplug_webdataset.samples import (
        getfirst,
        info,
        transform_with,
        xdecode,
    )
    from streamplug_webdataset.shardlists import (
        ResampledShards,
        SimpleShardList,
        non_empty,
        resampled,
        shardspec,
        single_node_only,
        split_by_node,
        split_by_worker,
    )
    from streamplug_webdataset.tariterators import (
        tarfile_samples,
        tarfile_to_samples,
    )
    from streamplug_webdataset.tarwriter import (
        ShardWriter,
        TarWriter,
    )
    from streamplug_webdataset.utils import (
        Cached,
        PipelineStage,
        repeatedly,
    )
    from streamplug_webdataset.writer import (
        WebDatasetWriter,
    )

_NAMES = {
    "arrays": "numpy_dumps",
    "compat": "DataPipeline WebDataset",
    "decoding": "Continue Decoder DecodingError gzfilter handle_extension imagehandler",
    "filters": (
        "associate batched decode detshuffle extract_keys listed log_keys map map_dict "
        "map_tuple pipelinefilter rename rename_keys rsample select shuffle slice "
        "to_tuple unbatched unlisted"
    ),
    "handlers": (
        "ignore_and_continue ignore_and_stop reraise_exception warn_and_continue warn_and_stop"
    ),
    "iterable": "FluidWrapper IterablePipeline",
    "loader": "WebLoader",
    "mix": "MockDataset RandomMix RoundRobin",
    "samples": "getfirst info transform_with xdecode",
    "shardlists": (
        "ResampledShards SimpleShardList non_empty resampled shardspec single_node_only "
        "split_by_node split_by_worker"
    ),
    "tariterators": "tarfile_samples tarfile_to_samples",
    "tarwriter": "ShardWriter TarWriter",
    "utils": "Cached PipelineStage repeatedly",
    "container_encodings": "torch_dumps torch_loads",
    "writer": "WebDatasetWriter",
}
"""Public names by module, which is imported on first use: discovery of plugins imports this package."""
_MODULES = {
    "autodecode",
    "compat",
    "filters",
    "handlers",
    "mix",
    "shardlists",
    "tariterators",
    "tenbin",
    "utils",
    "writer",
}

__all__ = [
    "Cached",
    "Continue",
    "DataPipeline",
    "Decoder",
    "DecodingError",
    "FluidWrapper",
    "IterablePipeline",
    "MockDataset",
    "PipelineStage",
    "RandomMix",
    "ResampledShards",
    "RoundRobin",
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
    "getfirst",
    "gzfilter",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "info",
    "listed",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "non_empty",
    "numpy_dumps",
    "pipelinefilter",
    "rename",
    "rename_keys",
    "repeatedly",
    "reraise_exception",
    "resampled",
    "rsample",
    "select",
    "shardspec",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_samples",
    "tarfile_to_samples",
    "to_tuple",
    "torch_dumps",
    "torch_loads",
    "transform_with",
    "unbatched",
    "unlisted",
    "warn_and_continue",
    "warn_and_stop",
    "xdecode",
]


if not TYPE_CHECKING:  # else any name would be one of the package
    _load, _ = lazy_names(__name__, _NAMES)

    def __getattr__(name: str) -> Any:
        if name == "WebLoader" and find_spec("torch") is None:
            raise ImportError(
                "WebLoader is a loader of torch, which is not installed: pip install torch; without "
                "it, iterate over the pipeline"
            )
        return import_module(f"{__name__}.{name}") if name in _MODULES else _load(name)
