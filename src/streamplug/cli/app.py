"""The ``streamplug`` command itself: finds its subcommands, and tells of errors."""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

import streamplug
from streamplug.errors import StreamplugError

COMMANDS = {
    "cat": "streamplug.cli.cat:cat",
    "config": "streamplug.cli.config:config",
    "convert": "streamplug.cli.convert:convert",
    "diff": "streamplug.cli.diff:diff",
    "explain": "streamplug.cli.explain:explain",
    "index": "streamplug.cli.index:index",
    "inspect": "streamplug.cli.inspect:inspect",
    "join": "streamplug.cli.join:join",
    "merge": "streamplug.cli.merge:merge",
    "new-plugin": "streamplug.cli.new_plugin:new_plugin",
    "plugins": "streamplug.cli.plugins:plugins",
    "proc": "streamplug.cli.proc:proc",
    "quickstart": "streamplug.cli.quickstart:quickstart",
    "select": "streamplug.cli.select:select",
    "shuffle": "streamplug.cli.shuffle:shuffle",
    "simulate": "streamplug.cli.simulate:simulate",
    "sort": "streamplug.cli.sort:sort",
    "split": "streamplug.cli.split:split",
    "verify": "streamplug.cli.verify:verify",
}
"""Where each subcommand is; it is imported when it runs, or when help is asked for."""

_TRACEBACK = "streamplug.traceback"


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().meta[_TRACEBACK] = True


def _traceback_option() -> click.Option:
    return click.Option(
        ["--traceback"],
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Show where an error comes from.",
    )


class _LazyGroup(click.Group):
    """A group whose commands are imported one by one, and whose errors are told in a line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name].partition(":")
            command: click.Command = getattr(import_module(module), name)
            command.params.append(_traceback_option())
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Only some versions of click suggest a command, and these two or three of them.
        name = args[0]
        near = get_close_matches(name, COMMANDS, 1, 0.6)
        if near and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StreamplugError as error:
            if ctx.find_root().meta.get(_TRACEBACK):
                click.echo(traceback.format_exc(), err=True, nl=False)
            else:
                click.echo(f"error: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_LazyGroup, params=[_traceback_option()])
@click.version_option(streamplug.__version__, prog_name="streamplug")
def main() -> None:
    """Streams training data from cloud storage into a training loop."""
