"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_encodings() -> list[Provider]:
    """Name the encodings of this distribution."""
    return [Provider("$name", "$module.encoding:$class_name")]
