"""The command ``streamplug index``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from streamplug.cli import examples
from streamplug.display import say, visible
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.index_writer import scan_index
from streamplug_tools.report.text_format import many


@click.command(
    epilog=examples(
        "streamplug index scan s3://bucket/tars --format webdataset",
        'streamplug index scan "tars/*.tar" --format webdataset --force',
    )
)
@click.argument("action", type=click.Choice(["scan"]))
@click.argument("location")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    required=True,
    help="Format of the files, such as webdataset.",
)
@click.option("--force", "exist_ok", is_flag=True, help="Replace existing files.")
@storage_options()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def index(
    action: str,  # noqa: ARG001 - there is one
    location: str,
    *,
    format_: str,
    exist_ok: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Write an index.json for files that have none.

    index scan reads files such as tar archives and writes an index.json next to them, so that they can be
    opened as a data set. LOCATION is their directory, or a pattern of files with * and {…}.
    """
    with Console(stderr=True).status("opening") as status:

        def report(what: str) -> None:
            status.update(Text(visible(what)))

        scanned = scan_index(
            location, format_, storage_options=storage_options, exist_ok=exist_ok, report=report
        )
    if as_json:
        click.echo(json.dumps(asdict(scanned), indent=2))
        return
    columns = ", ".join(f"{name} ({spec})" for name, spec in scanned.columns.items())
    say(
        f"{scanned.url}: written; {many(scanned.shards, 'shard')}, {many(scanned.samples, 'sample')}, "
        f"columns {columns}"
    )
