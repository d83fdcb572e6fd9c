"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the encodings of this distribution."""
    return [
        Provider("encoding", "pil", "streamplug_image.pil:PIL"),
        Provider("encoding", "jpeg", "streamplug_image.files:JPEG"),
        Provider("encoding", "png", "streamplug_image.files:PNG"),
        Provider(
            "encoding",
            "jpeg_array",
            "streamplug_image.image_lists:JPEGArray",
            aliases=("jpegarray",),
        ),
        Provider("encoding", "list[pil]", "streamplug_image.image_lists:ListPIL"),
        Provider("encoding", "list[jpeg]", "streamplug_image.image_lists:ListJPEG"),
        Provider("encoding", "list[png]", "streamplug_image.image_lists:ListPNG"),
    ]
