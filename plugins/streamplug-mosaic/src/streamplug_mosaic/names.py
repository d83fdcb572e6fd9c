"""Tables of the names of mosaicml-streaming: the modules that have them, and where they are defined here."""

from __future__ import annotations

VERSION = "0.13.0"
"""Version of mosaicml-streaming whose names these are."""

_TEXT_WRITERS = ("CSVWriter", "JSONWriter", "TSVWriter", "XSVWriter")
_MDS_ENCODINGS = (
    *("get_mds_encoded_size", "get_mds_encodings", "is_mds_encoding", "is_mds_encoding_safe"),
    *("mds_decode", "mds_encode"),
)
_COMPRESSIONS = (
    *("compress", "decompress", "get_compression_extension", "get_compressions", "is_compression"),
)
_HASHES = ("get_hash", "get_hashes", "is_hash")
_SHUFFLES = ("naive", "py1br", "py1e", "py1s", "py2s")
_SHUFFLE_FUNCTIONS = ("get_shuffle", *(f"get_shuffle_{name}" for name in _SHUFFLES))
_RANKS = (
    *("all_gather", "all_gather_object", "barrier", "broadcast", "get_local_rank"),
    *("get_local_world_size", "get_rank", "get_world_size", "maybe_init_dist"),
)
_PARSERS = ("bytes_to_int", "get_list_arg", "number_abbrev_to_int")
_RETRIES = ("retry", "wait_for_file_to_exist")
_REGISTRY = ("TypedRegistry", "construct_from_registry")
_TRANSFERS = ("CloudDownloader", "CloudUploader")
_TEXT = ("StreamingC4", "StreamingEnWiki", "StreamingPile")
_VISION = ("StreamingADE20K", "StreamingCIFAR10", "StreamingCOCO", "StreamingImageNet")
_VIDEO = ("StreamingInsideWebVid", "StreamingOutsideDTWebVid", "StreamingOutsideGIWebVid")

_DATA = ("LocalDataset", "Stream", "StreamingDataLoader", "StreamingDataset")
_WRITERS = ("CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter")

MODULES = {
    "streaming": (*_DATA, *_WRITERS),
    "streaming.base": (*_DATA, *_WRITERS),
    "streaming.base.batching": ("generate_work",),
    "streaming.base.compression": _COMPRESSIONS,
    "streaming.base.converters": ("dataframe_to_mds",),
    "streaming.base.dataloader": ("StreamingDataLoader",),
    "streaming.base.dataset": ("StreamingDataset",),
    "streaming.base.distributed": _RANKS,
    "streaming.base.format": (*_WRITERS, "get_index_basename"),
    "streaming.base.format.index": ("get_index_basename",),
    "streaming.base.format.json": ("JSONWriter",),
    "streaming.base.format.mds": ("MDSWriter",),
    "streaming.base.format.mds.encodings": _MDS_ENCODINGS,
    "streaming.base.format.xsv": ("CSVWriter", "TSVWriter", "XSVWriter"),
    "streaming.base.hashing": _HASHES,
    "streaming.base.local": ("LocalDataset",),
    "streaming.base.partition": ("get_partitions",),
    "streaming.base.registry_utils": _REGISTRY,
    "streaming.base.sampling": ("get_sampling",),
    "streaming.base.shuffle": _SHUFFLE_FUNCTIONS,
    "streaming.base.storage": _TRANSFERS,
    "streaming.base.storage.download": ("CloudDownloader",),
    "streaming.base.storage.upload": ("CloudUploader",),
    "streaming.base.stream": ("Stream", "streams_registry"),
    "streaming.base.util": ("clean_stale_shared_memory", "merge_index", *_PARSERS, *_RETRIES),
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
"""Names of each module."""

HOMES = {
    "encodings": (*_COMPRESSIONS, *_HASHES, *_MDS_ENCODINGS, "get_index_basename"),
    "dataset": ("StreamingDataset",),
    "distributed": _RANKS,
    "loader": ("StreamingDataLoader",),
    "local_dataset": ("LocalDataset",),
    "merge": ("merge_index",),
    "ordering": ("generate_work", "get_partitions", "get_sampling", *_SHUFFLE_FUNCTIONS),
    "parser": _PARSERS,
    "registry": (*_REGISTRY, "streams_registry"),
    "retry": _RETRIES,
    "streams": ("Stream",),
    "transfers": _TRANSFERS,
    "world": ("World", "clean_stale_shared_memory"),
    "writers": ("MDSWriter", *_TEXT_WRITERS),
}
"""Names of each module of `streamplug_mosaic.compat`; other names are those of other distributions."""
