"""First-party names and the distribution that provides each: hints for error texts, no more."""

from __future__ import annotations

from collections.abc import Mapping

CATALOG: Mapping[str, Mapping[str, str]] = {
    "storage": {
        "s3": "streamplug-s3fs",
        "s3a": "streamplug-s3fs",
        "gs": "streamplug-gcsfs",
        "gcs": "streamplug-gcsfs",
        "az": "streamplug-adlfs",
        "abfs": "streamplug-adlfs",
        "abfss": "streamplug-adlfs",
        "azure": "streamplug-adlfs",
        "azure-dl": "streamplug-adlfs",
        "obstore+s3": "streamplug-obstore",
        "obstore+s3a": "streamplug-obstore",
        "obstore+gs": "streamplug-obstore",
        "obstore+gcs": "streamplug-obstore",
        "obstore+az": "streamplug-obstore",
        "obstore+abfs": "streamplug-obstore",
        "obstore+abfss": "streamplug-obstore",
        "obstore+azure": "streamplug-obstore",
        "obstore+azure-dl": "streamplug-obstore",
        "obstore+https": "streamplug-obstore",
        "obstore+http": "streamplug-obstore",
        "ais": "streamplug-aistore",
        "dbfs": "streamplug-databricks",
        "hdfs": "streamplug-hdfs",
        "swebhdfs": "streamplug-hdfs",
        "webhdfs": "streamplug-hdfs",
        "hf": "streamplug-hf",
        "oci": "streamplug-ocifs",
        "sftp": "streamplug-sftp",
        "ssh": "streamplug-sftp",
    },
    "compression": {
        "zstd": "streamplug-zstandard",
        "lz4": "streamplug-lz4",
        "br": "streamplug-brotli",
        "snappy": "streamplug-snappy",
    },
    "encoding": {
        "pil": "streamplug-image",
        "jpeg": "streamplug-image",
        "png": "streamplug-image",
        "jpeg_array": "streamplug-image",
        "jpegarray": "streamplug-image",
        "list[jpeg]": "streamplug-image",
        "list[pil]": "streamplug-image",
        "list[png]": "streamplug-image",
        "msgpack": "streamplug-msgpack",
        "tensor": "streamplug-torch",
        "cbor": "streamplug-webdataset",
        "gzipped": "streamplug-webdataset",
        "npy": "streamplug-webdataset",
        "npz": "streamplug-webdataset",
        "pth": "streamplug-webdataset",
        "ten": "streamplug-webdataset",
    },
    "format": {
        "folder": "streamplug-folder",
        "parquet": "streamplug-parquet",
        "json": "streamplug-text",
        "jsonl": "streamplug-text",
        "litdata": "streamplug-litdata",
        "csv": "streamplug-text",
        "tsv": "streamplug-text",
        "plain-csv": "streamplug-text",
        "plain-jsonl": "streamplug-text",
        "xsv": "streamplug-text",
        "webdataset": "streamplug-webdataset",
    },
    "shuffle": {
        "naive": "streamplug-mosaic-shuffles",
        "py1s": "streamplug-mosaic-shuffles",
        "py2s": "streamplug-mosaic-shuffles",
        "py1br": "streamplug-mosaic-shuffles",
        "py1e": "streamplug-mosaic-shuffles",
    },
    "callback": {
        "opentelemetry": "streamplug-opentelemetry",
    },
    "engine": {
        "dask": "streamplug-dask",
        "ray": "streamplug-ray",
        "spark": "streamplug-spark",
    },
}
"""Distribution by kind and name; `tests/repo` checks it against the plugins themselves."""

COMMANDS: Mapping[str, str] = {
    "simulate": "streamplug-simulate",
}
"""Distribution of each command of ours that is not built in."""
