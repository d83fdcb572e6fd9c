"""Public names that installed distributions add to `streamplug`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from streamplug.plugin.catalog import load_catalog
from streamplug.plugin.discovery import disabled_reason, distribution_of

GROUP = "streamplug.names"
"""Entry point group of the names; values are ``module:attribute``."""


def load_name(name: str) -> Any:
    """Return the object that an installed distribution adds to `streamplug` by a name.

    Raises:
        AttributeError: If no distribution of ours has the name.
        ImportError: If its distribution is not installed, is disabled, or cannot be imported.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if len(points) > 1:
        providers = " and ".join(sorted(map(distribution_of, points)))
        raise ImportError(f"streamplug.{name} is in {providers}: uninstall one")
    for point in points:
        if reason := disabled_reason(distribution_of(point)):
            raise ImportError(f"{name} is in {distribution_of(point)}, which is disabled: {reason}")
        return point.load()
    if distribution := load_catalog().get("name", {}).get(name):
        raise ImportError(
            f"{name} is in {distribution}, which is not installed: pip install {distribution}"
        )
    raise AttributeError(f"module 'streamplug' has no attribute {name!r}")
