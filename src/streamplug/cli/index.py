"""``streamplug index``: makes or checks the companion of a large index.json."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.text import Text

from streamplug.fetch.companions import build_companion, check_companion

_ACTIONS = {"build": build_companion, "check": check_companion}


@click.command()
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.argument("location")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def index(action: str, location: str, *, as_json: bool) -> None:
    """Make (build) or check (check) the companion of the index.json at LOCATION.

    A data set of very many shards opens at once through the companion of its index.json, which says the
    same in a form that is mapped into memory, not parsed.
    """
    console = Console(stderr=True)
    with console.status("opening") as status:
        summary = _ACTIONS[action](location, report=lambda what: status.update(Text(what)))
    if as_json:
        click.echo(json.dumps(asdict(summary), indent=2))
    else:
        done = "written" if action == "build" else "whole, and that of its index.json"
        click.echo(
            f"{summary.url}: {done}; {summary.shards:,} shards, {summary.samples:,} samples, "
            f"{summary.bytes:,} bytes for {summary.index_bytes:,} of JSON"
        )
