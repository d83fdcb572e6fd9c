"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the encodings of this distribution."""
    return [
        Provider("encoding", "video", "streamplug_av.encodings:VideoFile"),
        Provider("encoding", "audio", "streamplug_av.encodings:AudioFile"),
    ]
