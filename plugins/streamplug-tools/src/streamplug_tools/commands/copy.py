"""The command ``streamplug copy``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug.stream import Stream
from streamplug_tools.commands.options import resumable
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.file_copy import copy_files
from streamplug_tools.progress import progress_bars
from streamplug_tools.report.text_format import many


@click.command(
    epilog=examples(
        "streamplug copy data /mnt/backup/data",
        "streamplug copy s3://bucket/set gs://bucket/set --threads 32",
    )
)
@click.argument("source")
@click.argument("out")
@click.option("--split", metavar="NAME", help="Subdirectory of SOURCE to copy.  [default: none]")
@click.option(
    "--threads",
    "num_threads",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Number of files that are copied in parallel.",
)
@storage_options()
@storage_options(
    "--out-storage-options", "Storage options of OUT, if they differ from --storage-options."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def copy(
    source: str,
    out: str,
    *,
    split: str | None,
    num_threads: int,
    storage_options: dict[str, Any] | None,
    out_storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Copy the files of a data set, byte for byte.

    SOURCE and OUT are directories or URLs, also of different clouds. The command copies the index.json of
    SOURCE and the files that it names, and verifies their sizes and checksums. If the command is killed, run
    it again: it copies the files that are missing.
    """
    with resumable("it goes on with the files that are missing"), progress_bars() as on_progress:
        result = copy_files(
            Stream(remote=source, split=split, storage_options=storage_options),
            out,
            num_threads=num_threads,
            storage_options=storage_options if out_storage_options is None else out_storage_options,
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2))
    else:
        before = result.files - result.copied
        there = f"; {before:,} of them were there" if before else ""
        say(f"{result.url}: copied; {many(result.files, 'file')}, {result.bytes:,} bytes{there}")
