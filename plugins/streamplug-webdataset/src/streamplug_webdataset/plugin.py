"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_formats() -> list[Provider]:
    """Name the format of this distribution."""
    return [Provider("webdataset", "streamplug_webdataset.format:WebDataset")]


@hookimpl
def streamplug_encodings() -> list[Provider]:
    """Name the encodings of this distribution."""
    return [
        Provider("npy", "streamplug_webdataset.arrays:Npy"),
        Provider("npz", "streamplug_webdataset.arrays:Npz"),
        Provider("ten", "streamplug_webdataset.tensors:Ten"),
        Provider("cbor", "streamplug_webdataset.tensors:Cbor"),
        Provider("pth", "streamplug_webdataset.wrapped:Pth"),
        Provider("gzipped", "streamplug_webdataset.wrapped:Gzipped"),
    ]
