"""``streamplug proc``: samples that are changed by expressions or by a program."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug.errors import ConfigError
from streamplug_tools import process, process_by
from streamplug_tools.commands.options import (
    column_options,
    columns_of,
    output_of,
    output_options,
    show_written,
)


@click.command()
@click.argument("source")
@click.argument("out")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "expressions", multiple=True, help="NAME=EXPRESSION; may be repeated.")
@column_options
@output_options
@source_options
def proc(
    source: str,
    out: str,
    command: tuple[str, ...],
    *,
    expressions: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Write the samples of SOURCE at OUT, with columns that expressions give, or as COMMAND makes them.

    Expressions are Python, as for select. A column that is new needs an encoding: --columns NAME:ENCODING.

    COMMAND, after --, reads a line of JSON for each sample and writes one for each that is to be written. It
    is started for each part of the set. If it gives other columns than it gets, --columns names them all.
    """
    if bool(expressions) == bool(command):
        raise click.UsageError("give either --set or a COMMAND after --")
    sources, output, columns = (
        streams_of([source], options),
        output_of(out, options),
        columns_of(options),
    )
    with reporting() as report:
        if command:
            written = process_by(sources, output, command, columns=columns, report=report)
        else:
            given = dict(_named(text) for text in expressions)
            written = process(sources, output, given, columns=columns, report=report)
    show_written(written, as_json=as_json)


def _named(text: str) -> tuple[str, str]:
    name, found, expression = text.partition("=")
    if not (name.strip() and found):
        raise ConfigError(f"--set {text!r}: expected NAME=EXPRESSION")
    return name.strip(), expression
