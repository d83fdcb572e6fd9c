"""Discovery of the subcommands of ``streamplug`` in installed distributions."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

import click

from streamplug.errors import BrokenPluginError
from streamplug.plugin import disabled_reason, distribution_of, load_catalog

GROUP = "streamplug.commands"
"""Entry point group of commands; values are click commands as ``module:name``."""


@cache
def _entry_points() -> dict[str, list[EntryPoint]]:
    """Return the entry points of commands, of enabled distributions."""
    points_of: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if not disabled_reason(distribution_of(point)):
            points_of.setdefault(point.name, []).append(point)
    return points_of


def command_names() -> list[str]:
    """Return the sorted names of available commands."""
    return sorted(_entry_points())


def load_command(name: str) -> click.Command | None:
    """Import a command, or return None; one that fails to load becomes a command that reports why."""
    points = _entry_points().get(name, [])
    if len(points) > 1:
        providers = sorted(map(distribution_of, points))
        return _broken_command(name, f"provided by {' and by '.join(providers)}: uninstall one")
    for point in points:
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - one distribution must not stop others
            reason = f"{distribution_of(point)}: {type(error).__name__}: {error}"
            return _broken_command(name, reason, error)
        if isinstance(loaded, click.Command):
            return loaded
        return _broken_command(name, f"{distribution_of(point)}: {point.value} is no click command")
    return None


def _broken_command(name: str, reason: str, cause: BaseException | None = None) -> click.Command:
    def fail(arguments: object) -> NoReturn:  # noqa: ARG001
        raise BrokenPluginError(f"the command {name} cannot be loaded: {reason}") from cause

    return click.Command(
        name,
        {"ignore_unknown_options": True},
        fail,
        [click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        short_help=f"Broken: {reason}",
    )


def missing_command_reason(name: str) -> str:
    """Return where to get a known command that is not installed, or an empty string."""
    distribution = load_catalog()["command"].get(name)
    if distribution is None:
        return ""
    if reason := disabled_reason(distribution):
        return f"{name} is in {distribution}, which is disabled: {reason}"
    return f"{name} is in {distribution}: pip install {distribution}"
