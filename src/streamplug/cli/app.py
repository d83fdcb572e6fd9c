"""The ``streamplug`` command group."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

import click

import streamplug
from streamplug.cli.command_group import CommandGroup, examples
from streamplug.errors import BrokenPluginError
from streamplug.plugin import disabled_reason, distribution_of, excluded_reason, load_catalog

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
        if reason := excluded_reason(point):
            return _broken_command(name, f"{distribution_of(point)}: {reason}")
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


class _PluginCommands(CommandGroup):
    """Commands of all installed distributions."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return command_names()

    def load_command(self, name: str) -> click.Command | None:
        return load_command(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            if reason := missing_command_reason(name):
                raise click.UsageError(reason, ctx)
            # Only some versions of click suggest commands, and those suggest several.
            matches = get_close_matches(
                name, {*command_names(), *load_catalog()["command"]}, 1, 0.6
            )
            if matches:
                raise click.UsageError(
                    f"No such command {name!r}. Did you mean {matches[0]!r}?", ctx
                )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_PluginCommands,
    epilog=examples(
        "streamplug quickstart",
        "streamplug inspect s3://bucket/set",
    ),
)
@click.version_option(streamplug.__version__, prog_name="streamplug")
def main() -> None:
    """Stream training data from cloud storage into a training loop."""
