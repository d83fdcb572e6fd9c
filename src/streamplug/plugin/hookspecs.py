"""The pluggy hook with which plugins declare what they provide."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from streamplug.plugin.provider import Provider

PROJECT = "streamplug"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def streamplug_plugins() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Return what a distribution provides.

    Each target is a subclass of its kind's interface, and is imported when its name is used.
    """
