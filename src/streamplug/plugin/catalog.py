"""Names of first-party plugins and their distributions, for error messages."""

from __future__ import annotations

from collections.abc import Mapping

_AZURE = ("az", "abfs", "abfss", "azure", "azure-dl")
_OBSTORE_SCHEMES = ("s3", "s3a", "gs", "gcs", *_AZURE, "https", "http")

_NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "storage": {
        "s3fs": ("s3", "s3a"),
        "gcsfs": ("gs", "gcs"),
        "adlfs": _AZURE,
        "obstore": tuple(f"obstore+{scheme}" for scheme in _OBSTORE_SCHEMES),
        "aistore": ("ais",),
        "databricks": ("dbfs",),
        "hdfs": ("hdfs", "swebhdfs", "webhdfs"),
        "hf": ("hf",),
        "ocifs": ("oci",),
        "sftp": ("sftp", "ssh"),
    },
    "compression": {
        "zstandard": ("zstd",),
        "lz4": ("lz4",),
        "brotli": ("br",),
        "snappy": ("snappy",),
    },
    "encoding": {
        "av": ("video", "audio"),
        "image": (
            *("pil", "jpeg", "png", "jpeg_array", "jpegarray"),
            *("list[jpeg]", "list[pil]", "list[png]"),
        ),
        "msgpack": ("msgpack",),
        "torch": ("tensor",),
        "webdataset": ("cbor", "gzipped", "npy", "npz", "pth", "ten"),
    },
    "format": {
        "folder": ("folder",),
        "litdata": ("litdata",),
        "parquet": ("parquet",),
        "text": ("json", "jsonl", "csv", "tsv", "plain-csv", "plain-jsonl", "xsv"),
        "webdataset": ("webdataset",),
    },
    "shuffle": {"mosaic": ("naive", "py1s", "py2s", "py1br", "py1e")},
    "order": {"budget": ("budget",), "mosaic": ("orig", "relaxed")},
    "source": {
        "delta": ("delta",),
        "files": ("files",),
        "iceberg": ("iceberg",),
        "views": ("view", "where"),
    },
    "callback": {"opentelemetry": ("opentelemetry",)},
    "engine": {"dask": ("dask",), "ray": ("ray",), "spark": ("spark",), "tools": ("local",)},
}
"""Names by kind and distribution, which is ``streamplug-`` and the key."""

MANIFESTS: Mapping[str, str] = {"view.json": "view"}
"""Source of each manifest by which a location without index.json is recognized."""

EXPRESSION_SOURCE = "where"
"""Source of streams whose `select` is an expression."""

UNNAMED_SOURCES = ("index", "files", EXPRESSION_SOURCE)
"""Sources that other options choose than `format`."""

_COMMAND_NAMES: Mapping[str, tuple[str, ...]] = {
    "simulate": ("simulate",),
    "testing": ("new-plugin",),
    "tools": (
        *("cat", "config", "convert", "diff", "explain", "index", "inspect", "join"),
        *("merge", "plugins", "proc", "quickstart", "select", "shuffle", "sort", "split", "verify"),
    ),
    "views": ("view",),
}


def _distributions(names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: f"streamplug-{key}" for key, of_key in names.items() for name in of_key}


CATALOG: Mapping[str, dict[str, str]] = {
    kind: _distributions(names) for kind, names in _NAMES.items()
}
"""Distribution by kind and name."""

COMMANDS: Mapping[str, str] = _distributions(_COMMAND_NAMES)
"""Distribution of each first-party command."""
