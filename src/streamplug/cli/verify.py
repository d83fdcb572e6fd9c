"""``streamplug verify``: reads a data set from end to end, and tells what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import Progress

from streamplug.stream import Stream
from streamplug.verify import Verified
from streamplug.verify import verify as check


@click.command()
@click.argument("location")
@click.option("--split", help="Sub-directory of LOCATION.")
@click.option(
    "--format", "--src-format", "format_", help="Of files for which there is no index.json."
)
@click.option("--threads", type=click.IntRange(1), default=4, help="Shards checked at once.")
@click.option("--retries", type=click.IntRange(0), default=2, help="Of a failed download.")
@click.option("--allow-unsafe-types", is_flag=True, help="Decode what can run code, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def verify(
    context: click.Context,
    location: str,
    split: str | None,
    format_: str | None,
    *,
    threads: int,
    retries: int,
    allow_unsafe_types: bool,
    as_json: bool,
) -> None:
    """Fetch every file of the data set at LOCATION, check sizes and digests, and decode every sample.

    The exit status is 1 if anything is wrong. Files go through the directory for temporary files; the data
    set is not touched.
    """
    stream = Stream(remote=location, split=split, format=format_, download_retry=retries)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking shards", total=None)
        found = check(
            stream,
            threads=threads,
            allow_unsafe_types=allow_unsafe_types,
            report=lambda done, of: progress.update(task, completed=done, total=of),
        )
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        _show(found)
    context.exit(1 if found.problems else 0)


def _show(found: Verified) -> None:
    for problem in found.problems:
        sample = "" if problem.index is None else f", sample {problem.index}"
        click.echo(f"shard {problem.shard} ({problem.file}){sample}: {problem.error}")
    if found.undecoded:
        names = ", ".join(found.undecoded)
        click.echo(f"not decoded, since that can run code: {names} (--allow-unsafe-types)")
    state = f"{len(found.problems):,} problems" if found.problems else "whole"
    click.echo(
        f"{found.url}: {state}; {found.shards:,} shards, {found.samples:,} samples, {found.bytes:,} bytes"
    )
