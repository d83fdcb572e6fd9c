"""The command ``streamplug delete``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug_tools.commands.options import resumable
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.deletion import delete as delete_dataset
from streamplug_tools.report.text_format import many


@click.command(
    epilog=examples(
        "streamplug delete data",
        "streamplug delete s3://bucket/set --yes",
    )
)
@click.argument("location")
@click.option(
    "--yes", is_flag=True, help="Remove the files. Without this option, only print their names."
)
@storage_options()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def delete(
    location: str, *, yes: bool, storage_options: dict[str, Any] | None, as_json: bool
) -> None:
    """Remove the files of a data set.

    LOCATION is a directory or URL with an index.json, or with an unfinished data set. The command removes
    the files that the index or the plan of an unfinished data set names, and no others. It removes the index
    first. If it is killed, run it again: it removes the rest.
    """
    with resumable("it removes the rest"):
        result = delete_dataset(location, dry_run=not yes, storage_options=storage_options)
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2))
        return
    if not yes:
        for name in result.files:
            say(name)
    what = "removed" if yes else "would be removed; pass --yes to remove them"
    say(f"{result.url}: {many(len(result.files), 'file')}, {result.bytes:,} bytes: {what}")
    if result.kept:
        say(
            f"{many(len(result.kept), 'other file')} in {result.url}: kept, such as {result.kept[0]}"
        )
