"""``streamplug join``: the columns of several data sets, by a key."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import join as write_joined
from streamplug_tools.commands.options import (
    column_options,
    columns_of,
    output_of,
    output_options,
    show_written,
)


@click.command()
@click.argument("sources", metavar="SOURCE SOURCE...", nargs=-1, required=True)
@click.option("--out", "-o", required=True, help="Where to write.")
@click.option("--by", required=True, help="The key: a Python expression, such as a column's name.")
@column_options
@output_options
@source_options
def join(sources: tuple[str, ...], *, out: str, by: str, as_json: bool, **options: Any) -> None:
    """Write the samples of the first SOURCE with the columns of all that have the same key.

    They come in the order of the first; those are left out whose key another lacks. Keys are sorted in
    files, so that they need not fit into memory.
    """
    with reporting() as report:
        written = write_joined(
            streams_of(sources, options),
            output_of(out, options),
            by,
            columns=columns_of(options),
            report=report,
        )
    show_written(written, as_json=as_json)
