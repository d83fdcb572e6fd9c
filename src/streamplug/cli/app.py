"""The ``streamplug`` command group."""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from typing import Any, NoReturn

import click

import streamplug
from streamplug.cli.command_help import examples
from streamplug.cli.commands import command_names, load_command, missing_command_reason
from streamplug.cli.option_names import use_option_names
from streamplug.display.terminal import say
from streamplug.errors import StreamplugError
from streamplug.plugin.catalog import COMMANDS
from streamplug.plugin_kit.disk import OUTPUT_REMEDIES

_TRACEBACK = "streamplug.traceback"
_COMMAND = "streamplug.command"
_MAX_SUMMARY_CHARS = 1000  # click cuts summaries at the width of the terminal unless they are set
_EXIT_INTERRUPTED = 130


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_COMMAND] = context.command  # the last is the subcommand that runs
    if value:
        context.meta[_TRACEBACK] = True


_TRACEBACK_OPTION = click.Option(
    ["--traceback"],
    is_flag=True,
    is_eager=True,  # before options whose values are refused
    expose_value=False,
    callback=_remember,
    help="Print the traceback of an error.",
)


class _CommandGroup(click.Group):
    """Group that imports commands on use, and prints a StreamplugError as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        command = self.commands.get(cmd_name)
        if command is None and (command := load_command(cmd_name)) is not None:
            _complete(command)
            self.add_command(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            if reason := missing_command_reason(name):
                raise click.UsageError(reason, ctx)
            # Only some versions of click suggest commands, and those suggest several.
            matches = get_close_matches(name, {*command_names(), *COMMANDS}, 1, 0.6)
            if matches:
                raise click.UsageError(
                    f"No such command {name!r}. Did you mean {matches[0]!r}?", ctx
                )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StreamplugError as error:
            _fail(ctx, use_option_names(str(error), ctx.meta.get(_COMMAND)))
        except KeyboardInterrupt as error:
            say(f"interrupted; {str(error) or 'run the command again to start over'}", err=True)
            ctx.exit(_EXIT_INTERRUPTED)
        except OSError as error:  # such as standard output on a full disk
            remedy = OUTPUT_REMEDIES.get(error.errno or 0)
            if remedy is None or isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise
            _fail(ctx, f"{error.filename or 'standard output'}: {error.strerror}; {remedy}")


def _complete(command: click.Command) -> None:
    """Add --traceback to a command and its subcommands, whose lists show whole sentences."""
    if _TRACEBACK_OPTION not in command.params:
        command.params.append(_TRACEBACK_OPTION)
        command.short_help = command.get_short_help_str(_MAX_SUMMARY_CHARS)
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _complete(part)


def _fail(context: click.Context, text: str) -> NoReturn:
    """Print the current exception, and exit."""
    if context.meta.get(_TRACEBACK):
        say(traceback.format_exc().rstrip(), err=True)
    else:
        say(f"error: {text}", err=True)
    context.exit(1)


@click.group(
    cls=_CommandGroup,
    params=[_TRACEBACK_OPTION],
    epilog=examples(
        "streamplug quickstart",
        "streamplug inspect s3://bucket/set",
    ),
)
@click.version_option(streamplug.__version__, prog_name="streamplug")
def main() -> None:
    """Stream training data from cloud storage into a training loop."""
