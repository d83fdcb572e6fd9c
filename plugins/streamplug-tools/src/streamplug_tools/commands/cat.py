"""The command ``streamplug cat``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from streamplug.cli import examples
from streamplug_tools import as_lines, convert
from streamplug_tools.commands.options import job_options, make_columns, refuse_options, run_job
from streamplug_tools.commands.source_options import make_streams
from streamplug_tools.json_lines import strict_line

_PRINTING = {"sources", "out", "begin", "end", "select", "drop", "split", "src_format"}
_PRINTING |= {"modules", "storage_options", "traceback"}


@click.command(
    epilog=examples(
        "streamplug cat data --end 3",
        "streamplug cat s3://bucket/a s3://bucket/b --out s3://bucket/both",
    )
)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--out",
    "-o",
    metavar="LOCATION",
    help="Write one data set to this location instead of printing samples.",
)
@click.option(
    "--begin",
    type=int,
    default=0,
    show_default=True,
    help="First sample; a negative number counts from the end.",
)
@click.option(
    "--end",
    type=int,
    help="End of the samples, exclusive; a negative number counts from the end.  [default: after the "
    "last]",
)
@job_options
@click.pass_context
def cat(
    context: click.Context,
    /,
    sources: tuple[str, ...],
    *,
    out: str | None,
    begin: int,
    end: int | None,
    **options: Any,
) -> None:
    """Print samples as lines of JSON, or write them as one data set.

    The command prints the samples of all SOURCEs, or writes them with --out. It prints bytes as
    {"base64": …}. For values that JSON cannot represent, such as images, it prints the stored bytes; for NaN
    and infinite numbers, it prints null.
    """
    if out is not None:
        run_job(convert, sources, out, options, begin=begin, end=end)
        return
    names = {str(parameter.name) for parameter in context.command.params}
    refuse_options(names - _PRINTING, "only with --out")
    streams, columns = make_streams(sources, options), make_columns(options)
    # click.echo would write line by line.
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    for line in as_lines(streams, begin=begin, end=end, select=columns.select, drop=columns.drop):
        text = strict_line(line)
        sys.stdout.write(text if is_unicode else json.dumps(json.loads(text)))
        sys.stdout.write("\n")
    sys.stdout.flush()
