"""Group of commands whose errors are one line, and the examples of their help."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import click

from streamplug.display import say
from streamplug.errors import ConfigError, StreamplugError
from streamplug.plugin_kit import OUTPUT_REMEDIES

_ADVICE = (
    ("remote", "check remote=, local= and split=", "check the location"),
    ("remote", "check remote= and split=", "check the location"),
    ("remote", "pass remote= if the set lies elsewhere", "check the location"),
    ("exist_ok", ", or pass exist_ok=True (--exist-ok) to replace it", ""),
    ("columns", ", or leave the column out with columns=", ""),
    ("columns", "read fewer columns with columns=, or ", ""),
    ("columns", "read only others, with columns=, or ", ""),
    ("columns", "choose others with columns=, or ", ""),
    (
        "rebase",
        "call rebase() to apply the changes to the latest version, and commit again",
        "run the command again, or if you read an older version, write to another location",
    ),
    (
        "src_format",
        "; files of formats that need no index, such as Parquet, are read with their format= (--src-format)",
        "",
    ),
    ("skip_bad", "; skip_bad= leaves out that many such samples", ""),
    ("download_timeout", ", or raise download_timeout=", ""),
)
"""Arguments, advice that names them, and what commands say that have no such option."""

_DICT = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_OPTIONS_DICT = re.compile(rf"storage_options=({_DICT})(?:, or ({_DICT}))?")
_MORE_RETRIES = re.compile(r"; raise (?:(?:download_)?retry|download_patience)= for more")
_TRACEBACK = "streamplug.traceback"
_COMMAND = "streamplug.command"
_JSON = "--json"
_MAX_SUMMARY_CHARS = 1000  # click cuts summaries at the width of the terminal unless they are set
_EXIT_ERROR = 2  # as for wrong usage; 1 says that a check has failed or that data sets differ
_EXIT_INTERRUPTED = 130


def use_option_names(text: str, command: click.Command | None) -> str:
    """Replace ``name=`` in an error by the option of a command, or its argument, of that name."""
    parameters = {str(parameter.name).strip("_"): parameter for parameter in _parameters(command)}
    if not parameters:
        return text
    names = {name: _shown_name(parameter) for name, parameter in parameters.items()}
    if names.get("select") == "--select":  # there, --columns has encodings, not the columns to read
        text = text.replace(
            "leave the column out with columns=", "leave the column out with --drop"
        )
        text = text.replace("with columns=", "with --select")
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    for name, advice, replacement in _ADVICE:
        if name not in names:
            text = text.replace(advice, replacement)
    text = _MORE_RETRIES.sub("; raise retries= for more" if "retries" in names else "", text)
    # Not --format, which in most commands is that of the new data set.
    text = text.replace("with their format= (--src-format)", "with --src-format")
    if "storage_options" in names:
        text = _OPTIONS_DICT.sub(_options_as_json, text)
    # Without a value, as in "pass split=, or …", the mark goes as well.
    pattern = rf"(?<![\w'\"`./=-])({alternatives})=(True\b|[\w'\"\[({{.-]|)"

    def replace(match: re.Match[str]) -> str:
        name, value = match.groups()
        is_set = value == "True" and getattr(parameters[name], "is_flag", False)
        return names[name] if is_set or not value else f"{names[name]}={value}"

    # Some errors name both, as in "exist_ok=True (--exist-ok)".
    return re.sub(r"(--[\w-]+) \(\1\)", r"\1", re.sub(pattern, replace, text))


def _options_as_json(match: re.Match[str]) -> str:
    """Return storage options of Python as those of a command: ``--storage-options '{"anon": true}'``."""
    first, second = match.groups()
    shown = [_as_json(text) for text in (first, second) if text]
    return " or ".join(shown)


def _as_json(text: str) -> str:
    try:
        options = ast.literal_eval(text.replace("…", "'…'"))
    except (ValueError, SyntaxError):  # of other forms than those that errors have
        return text
    return f"--storage-options '{json.dumps(options, ensure_ascii=False)}'"


def _shown_name(parameter: click.Parameter) -> str:
    options = [name for name in parameter.opts if name.startswith("--")]
    return options[0] if options else parameter.human_readable_name


def _parameters(command: click.Command | None) -> Iterator[click.Parameter]:
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _parameters(part)
    elif command is not None:
        yield from command.params


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


def _import_modules(_: click.Context, parameter: click.Parameter, names: Sequence[str]) -> None:
    """Import modules, also those in the working directory, which is not on the path of a program."""
    if names and (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    for name in names:
        try:
            import_module(name)
        except Exception as error:
            raise ConfigError(
                f"{parameter.opts[0]} {name}: {type(error).__name__}: {error}; name a module that is "
                "installed or in the working directory, such as my_encodings"
            ) from error


_IMPORT_OPTION = click.Option(
    ["--import", "modules"],
    multiple=True,
    metavar="MODULE",
    is_eager=True,  # before options that name what it registers
    expose_value=False,
    callback=_import_modules,
    help="Import a module first, such as one that registers encodings; can be repeated.",
)
_COMMON_OPTIONS = (_IMPORT_OPTION, _TRACEBACK_OPTION)


class CommandGroup(click.Group):
    """Group that imports commands on use, and prints a StreamplugError as one line with exit status 2.

    Errors name the options of the command instead of arguments in Python, and each command has ``--import``
    and ``--traceback``. With ``--json``, standard output gets the error as ``{"error": …}``, too. A subclass
    defines `load_command`, and ``list_commands`` of click.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += _COMMON_OPTIONS

    def load_command(self, name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        raise NotImplementedError

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002, D102 - of click
        command = self.commands.get(cmd_name)
        if command is None and (command := self.load_command(cmd_name)) is not None:
            _complete(command)
            self.add_command(command, cmd_name)
        return command

    def get_help(self, ctx: click.Context) -> str:  # noqa: D102 - of click
        try:
            return super().get_help(ctx)
        except StreamplugError as error:  # of the variables that name plugins
            _fail(ctx, str(error))

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102 - of click
        # As standard error: names, values and help have characters that the locale may not have.
        if sys.stdout is None:  # closed, as with `>&-`
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: D102 - of click
        if _JSON in ctx.args[: ctx.args.index("--") if "--" in ctx.args else None]:
            ctx.meta[_JSON] = True  # before a command is parsed, whose options may be wrong
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # as of `| head`, which has read what it needs
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
            ctx.exit(0)
        except click.ClickException as error:  # of wrong usage
            _print_json(ctx, error.format_message())
            raise
        except StreamplugError as error:
            _fail(ctx, use_option_names(str(error), ctx.meta.get(_COMMAND)))
        except KeyboardInterrupt as error:
            text = f"interrupted; {str(error) or 'run the command again to start over'}"
            _print_json(ctx, text)
            say(text, err=True)
            ctx.exit(_EXIT_INTERRUPTED)
        except OSError as error:  # such as standard output on a full disk
            if isinstance(error, FileNotFoundError) and _is_working_directory_removed():
                _fail(ctx, "the working directory was removed; change to another one")
            remedy = OUTPUT_REMEDIES.get(error.errno or 0)
            if remedy is None or isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise
            _fail(ctx, f"{error.filename or 'standard output'}: {error.strerror}; {remedy}")
        else:
            return result


def _is_working_directory_removed() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def examples(*lines: str) -> str:
    """Return command lines as the `epilog` of a click command, which prints them as they are."""
    return "\n  ".join(("\b\nExamples:", *lines))


def _complete(command: click.Command) -> None:
    """Add --import and --traceback to a command and its subcommands, whose lists show whole sentences."""
    if _TRACEBACK_OPTION not in command.params:
        command.params += _COMMON_OPTIONS
        command.short_help = command.get_short_help_str(_MAX_SUMMARY_CHARS)
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _complete(part)


def _print_json(context: click.Context, text: str) -> None:
    """Print an error as JSON, if the command is to print its result so."""
    if context.meta.get(_JSON):
        click.echo(json.dumps({"error": text}))


def _fail(context: click.Context, text: str) -> NoReturn:
    """Print the current exception, and exit."""
    with suppress(OSError):  # which the error may be about
        _print_json(context, text)
    if context.meta.get(_TRACEBACK):
        say(traceback.format_exc().rstrip(), err=True)
    else:
        say(f"error: {text}", err=True)
    context.exit(_EXIT_ERROR)
