"""``streamplug cat``: samples as lines of JSON, or data sets end to end as one."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import as_lines, convert
from streamplug_tools.commands.options import (
    column_options,
    columns_of,
    output_of,
    output_options,
    show_written,
)

_PRINTING = {"sources", "out", "begin", "end", "select", "drop", "split", "src_format"}
_PRINTING |= {"storage_options"}


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--out", "-o", help="Write one data set there rather than print samples.")
@click.option("--begin", type=int, default=0, help="The first sample; negative: from the end.")
@click.option("--end", type=int, help="The one after the last; negative: from the end.")
@column_options
@output_options
@source_options
@click.pass_context
def cat(
    context: click.Context,
    /,
    sources: tuple[str, ...],
    *,
    out: str | None,
    begin: int,
    end: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the samples of all SOURCEs as lines of JSON, or write them as one data set with --out.

    Bytes are {"base64": …}, and so are, as they are stored, values that JSON cannot tell, such as images.
    """
    streams, columns = streams_of(sources, options), columns_of(options)
    if out is not None:
        with reporting() as report:
            written = convert(
                streams,
                output_of(out, options),
                begin=begin,
                end=end,
                columns=columns,
                report=report,
            )
        show_written(written, as_json=as_json)
        return
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") == ParameterSource.COMMANDLINE
        and parameter.name not in _PRINTING
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: of a data set that --out names, and none is")
    # click.echo would write line by line.
    for line in as_lines(streams, begin=begin, end=end, select=columns.select, drop=columns.drop):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
