"""The hooks that a plugin can implement, one per kind; each returns plain data."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from streamplug.plugin.provider import Provider

PROJECT = "streamplug"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def streamplug_storages() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the storages that this plugin provides, by URL scheme.

    Each target is a subclass of `streamplug.Storage`.
    """


@hookspec
def streamplug_compressions() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the compressions that this plugin provides.

    Each target is a subclass of `streamplug.Compression`.
    """


@hookspec
def streamplug_encodings() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the column encodings that this plugin provides.

    Each target is a subclass of `streamplug.Encoding`.
    """


@hookspec
def streamplug_formats() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the shard formats that this plugin provides.

    Each target is a subclass of `streamplug.Format`.
    """


@hookspec
def streamplug_shuffles() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the shuffle algorithms that this plugin provides.

    Each target is a subclass of `streamplug.ShuffleAlgorithm`.
    """


@hookspec
def streamplug_callbacks() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the callbacks that this plugin provides.

    Each target is a subclass of `streamplug.Callback`.
    """


@hookspec
def streamplug_engines() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Name the engines that this plugin provides.

    Each target is a subclass of `streamplug.Engine`.
    """
