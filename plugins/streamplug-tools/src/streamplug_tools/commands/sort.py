"""``streamplug sort``: all samples by the value of an expression."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import sort as write_sorted
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
@click.option("--by", required=True, help="A Python expression, such as the name of a column.")
@click.option("--descending", is_flag=True, help="The largest first.")
@column_options
@output_options
@source_options
def sort(
    source: str, out: str, *, by: str, descending: bool, as_json: bool, **options: Any
) -> None:
    """Write the samples of SOURCE at OUT by the value of an expression; equal ones stay in their order.

    Values are sorted in files, so that they need not fit into memory.
    """
    with reporting() as report:
        written = write_sorted(
            streams_of([source], options),
            output_of(out, options),
            by,
            descending=descending,
            columns=columns_of(options),
            report=report,
        )
    show_written(written, as_json=as_json)
