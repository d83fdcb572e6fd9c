"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_encodings() -> list[Provider]:
    """Name the encodings of this distribution."""
    return [
        Provider("pil", "streamplug_image.pil:PIL"),
        Provider("jpeg", "streamplug_image.files:JPEG"),
        Provider("png", "streamplug_image.files:PNG"),
        Provider("jpeg_array", "streamplug_image.lists:JPEGArray", aliases=("jpegarray",)),
        Provider("list[pil]", "streamplug_image.lists:ListPIL"),
        Provider("list[jpeg]", "streamplug_image.lists:ListJPEG"),
        Provider("list[png]", "streamplug_image.lists:ListPNG"),
    ]
