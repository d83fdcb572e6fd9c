"""``streamplug select``: the samples for which an expression is true."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import select as write_selected
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
@click.option("--where", required=True, help="A Python expression, such as 'len(text) > 100'.")
@column_options
@output_options
@source_options
def select(source: str, out: str, *, where: str, as_json: bool, **options: Any) -> None:
    """Write the samples of SOURCE at OUT for which an expression is true.

    It is Python, and runs as a program of yours would. Its names are those of columns; sample is a dict of
    all, number counts the samples from 0, and there are json, math, np and re.
    """
    with reporting() as report:
        written = write_selected(
            streams_of([source], options),
            output_of(out, options),
            where,
            columns=columns_of(options),
            report=report,
        )
    show_written(written, as_json=as_json)
