"""The command ``streamplug merge``."""

from __future__ import annotations

import json
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display.terminal import say
from streamplug.interfaces.storage import public_url
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.merge import merge_index


@click.command(
    epilog=examples(
        "streamplug merge years",
        "streamplug merge s3://bucket/years 2025 2026",
    )
)
@click.argument("out")
@click.argument("parts", nargs=-1)
@storage_options()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def merge(
    out: str, parts: tuple[str, ...], *, storage_options: dict[str, Any] | None, as_json: bool
) -> None:
    """Write one index.json for all the shards of several data sets.

    Each part is a data set in a directory below OUT. Samples come in the order of the parts. Without PARTS,
    the command merges all directories below OUT with an index.json, sorted by name. It neither reads nor
    moves shards.
    """
    places = (list(parts), out) if parts else (out,)
    shards = merge_index(*places, storage_options=storage_options)
    if as_json:
        click.echo(json.dumps({"shards": shards}))
    else:
        say(f"{public_url(out)}: {shards:,} shards in one index.json")
