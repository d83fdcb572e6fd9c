"""``streamplug convert``: a data set again, in another format or with other columns."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import convert as write_again
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
@column_options
@output_options
@source_options
def convert(source: str, out: str, *, as_json: bool, **options: Any) -> None:
    """Write the data set at SOURCE again at OUT, in another format or with other columns.

    Values whose encoding stays are not decoded: a JPEG file stays the same file. If it is killed, the same
    command goes on where it stood, and the bytes are those of an undisturbed run.
    """
    with reporting() as report:
        written = write_again(
            streams_of([source], options),
            output_of(out, options),
            columns=columns_of(options),
            report=report,
        )
    show_written(written, as_json=as_json)
