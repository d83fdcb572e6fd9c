"""Isolation of tests from the installed plugins."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from streamplug.plugin import (
    PROJECT,
    Provider,
    Registrations,
    clear_caches,
    hookimpl,
    register,
    registrations,
    unregister,
)

_VARIABLES = ("STREAMPLUG_PLUGINS", "STREAMPLUG_DISABLE_PLUGINS", "STREAMPLUG_STRICT_PLUGINS")


@contextmanager
def isolated_plugins(*plugins: object) -> Iterator[None]:
    """Replace the installed plugins and this process's registrations with the given ones during a block.

    Processes that are started inside the block see the installed plugins.

    Args:
        *plugins: Modules, or other objects, that implement the hook; the distribution is named after the
            first part of the module's name. Or the `Provider` objects of a distribution ``test``, as in
            ``isolated_plugins(Provider("encoding", "x", "my_module:X"))``.
    """
    points = [
        Point(_name(plugin), plugin) for plugin in plugins if not isinstance(plugin, Provider)
    ]
    if providers := [plugin for plugin in plugins if isinstance(plugin, Provider)]:
        hook = hookimpl(lambda: providers)
        points.append(Point("test", SimpleNamespace(streamplug_plugins=hook)))
    environment = {k: v for k, v in os.environ.items() if k not in _VARIABLES}
    saved = registrations()
    clear_caches()
    try:
        with (
            mock.patch("importlib.metadata.entry_points", partial(_entry_points, points)),
            mock.patch.dict(os.environ, environment, clear=True),
        ):
            _set_registrations({})
            yield
    finally:
        _set_registrations(saved)
        clear_caches()


_installed = importlib.metadata.entry_points


def _entry_points(points: list[Point], **selected: str) -> Any:
    """Return the points for the group of plugins, and what is installed for others."""
    return points if selected.get("group") == PROJECT else _installed(**selected)


@dataclass(frozen=True)
class Point:
    """Fake entry point of an installed distribution."""

    name: str
    plugin: object

    @property
    def dist(self) -> SimpleNamespace:
        """Name and version of the distribution."""
        return SimpleNamespace(metadata={"Name": self.name}, version="0")

    @property
    def value(self) -> str:
        """Target of the entry point."""
        return repr(self.plugin)

    def load(self) -> object:
        """Return the plugin."""
        return self.plugin


def _name(plugin: object) -> str:
    name: str = getattr(plugin, "__name__", type(plugin).__name__)
    return name.partition(".")[0]


def _set_registrations(wanted: Registrations) -> None:
    for kind, names in registrations().items():
        for name in names:
            unregister(kind, name)
    for kind, classes in wanted.items():
        for name, cls in classes.items():
            register(kind, name, cls, replace=True)
