"""Declaration of the plugins of this distribution; it imports nothing else, as every listing imports it."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the format and the encodings of this distribution."""
    return [
        Provider("format", "webdataset", "streamplug_webdataset.format:WebDataset"),
        Provider("encoding", "npy", "streamplug_webdataset.arrays:Npy"),
        Provider("encoding", "npz", "streamplug_webdataset.arrays:Npz"),
        Provider("encoding", "ten", "streamplug_webdataset.tensors:Ten"),
        Provider("encoding", "cbor", "streamplug_webdataset.tensors:Cbor"),
        Provider("encoding", "pth", "streamplug_webdataset.container_encodings:Pth"),
        Provider("encoding", "gzipped", "streamplug_webdataset.container_encodings:Gzipped"),
    ]
