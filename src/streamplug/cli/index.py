"""``streamplug index``: makes an index.json, and makes or checks the companion of a large one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from streamplug.cli.storage_options import storage_options
from streamplug.errors import ConfigError
from streamplug.scan.companions import build_companion, check_companion
from streamplug.scan.index_writer import scan_index

_ACTIONS = {"build": build_companion, "check": check_companion}


@click.command()
@click.argument("action", type=click.Choice([*_ACTIONS, "scan"]))
@click.argument("location")
@click.option("--format", "format_", help="For scan: the format of the files, such as webdataset.")
@click.option("--force", is_flag=True, help="For scan: replace an index.json that is there.")
@storage_options(text="Settings of the storage.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def index(
    action: str,
    location: str,
    *,
    format_: str | None,
    force: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Make the index.json of the files at LOCATION (scan), or make (build) or check (check) its companion.

    Scan looks through files that have no index.json, such as tar archives, so that everybody can read them
    as a data set. LOCATION is their directory, or they themselves with * and {…}.

    A data set of very many shards opens at once through the companion of its index.json, which says the
    same in a form that is mapped into memory, not parsed.
    """
    if (action == "scan") != (format_ is not None) or (force and action != "scan"):
        raise ConfigError("scan needs --format, and only scan takes --format and --force")
    console = Console(stderr=True)
    with console.status("opening") as status:

        def report(what: str) -> None:
            status.update(Text(what))

        if format_ is not None:
            scanned = scan_index(
                location, format_, storage_options=storage_options, exist_ok=force, report=report
            )
        else:
            summary = _ACTIONS[action](location, storage_options=storage_options, report=report)
    if as_json:
        click.echo(json.dumps(asdict(summary if format_ is None else scanned), indent=2))
    elif format_ is not None:
        columns = ", ".join(f"{name} ({spec})" for name, spec in scanned.columns.items())
        click.echo(
            f"{scanned.url}: written; {scanned.shards:,} shards, {scanned.samples:,} samples, "
            f"columns {columns}"
        )
    else:
        done = "written" if action == "build" else "whole, and that of its index.json"
        click.echo(
            f"{summary.url}: {done}; {summary.shards:,} shards, {summary.samples:,} samples, "
            f"{summary.bytes:,} bytes for {summary.index_bytes:,} of JSON"
        )
