"""The ``streamplug`` command group."""

from __future__ import annotations

from difflib import get_close_matches

import click

import streamplug
from streamplug.cli.command_group import CommandGroup, examples
from streamplug.cli.commands import command_names, load_command, missing_command_reason
from streamplug.plugin import load_catalog


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
