"""The command ``streamplug merge``."""

from __future__ import annotations

import json
import os.path
from pathlib import Path
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug.interfaces import public_url
from streamplug.plugin import is_url, join, local_path
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

    Each PART is a data set in a directory below OUT: a path relative to OUT or to the working directory, or a
    URL. Samples come in the order of the parts. Without PARTS, the command merges all directories below OUT
    with an index.json, sorted by name. It neither reads nor moves shards.
    """
    places = ([_resolve_part(part, out) for part in parts], out) if parts else (out,)
    shards = merge_index(*places, storage_options=storage_options)
    if as_json:
        click.echo(json.dumps({"shards": shards}))
    else:
        say(f"{public_url(out)}: {shards:,} shards in one index.json")


def _resolve_part(part: str, out: str) -> str:
    """Return the location of a part, whose path may be relative to `out` or to the working directory."""
    name = os.path.normpath(part)
    if is_url(part) or Path(part).expanduser().is_absolute() or name.split("/")[0] in (".", ".."):
        return part
    root = local_path(out)
    if root is not None:
        path = Path(part)
        is_below = path.absolute().is_relative_to(root.absolute())
        # Another folder of the working directory may have the name of a part.
        if is_below or (path.exists() and not (root / name).exists()):
            return part
    return join(out, name)
