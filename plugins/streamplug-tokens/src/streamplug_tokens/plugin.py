"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the formats of this distribution."""
    return [
        Provider("format", "megatron", "streamplug_tokens.megatron:Megatron"),
        Provider("format", "nanogpt", "streamplug_tokens.nanogpt:NanoGPT"),
    ]
