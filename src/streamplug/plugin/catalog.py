"""First-party names and the distribution that provides each: hints for error texts, no more."""

from __future__ import annotations

from collections.abc import Mapping

CATALOG: Mapping[str, Mapping[str, str]] = {
    "storage": {"s3": "streamplug-s3fs", "s3a": "streamplug-s3fs"},
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
    },
    "format": {},
    "shuffle": {
        "naive": "streamplug-mosaic-shuffles",
        "py1s": "streamplug-mosaic-shuffles",
        "py2s": "streamplug-mosaic-shuffles",
        "py1br": "streamplug-mosaic-shuffles",
        "py1e": "streamplug-mosaic-shuffles",
    },
}
"""Distribution by kind and name; `tests/repo` checks it against the plugins themselves."""
