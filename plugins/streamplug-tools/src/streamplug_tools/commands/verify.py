"""The command ``streamplug verify``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug.stream import Stream
from streamplug_tools.commands.source_options import name_format
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.progress import progress_bars
from streamplug_tools.report.text_format import many
from streamplug_tools.verification import Verified
from streamplug_tools.verification import verify as check


@click.command(
    epilog=examples(
        "streamplug verify data",
        "streamplug verify s3://bucket/set --threads 16",
    )
)
@click.argument("location")
@click.option("--split", metavar="NAME", help="Subdirectory of LOCATION to check.  [default: none]")
@click.option(
    "--format",
    "--src-format",
    "format_",
    metavar="NAME",
    help="Format of files that have no index.json, such as webdataset, or that have the index.json of "
    "another library, such as litdata.  [default: detected]",
)
@storage_options()
@click.option(
    "--threads",
    "num_threads",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Number of threads; each checks one shard at a time.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Number of retries of a failed download.",
)
@click.option(
    "--allow-unsafe-types",
    is_flag=True,
    help="Also decode columns whose decoding can run code, such as pickle.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def verify(
    context: click.Context,
    location: str,
    split: str | None,
    format_: str | None,
    *,
    storage_options: dict[str, Any] | None,
    num_threads: int,
    retries: int,
    allow_unsafe_types: bool,
    as_json: bool,
) -> None:
    """Check every file and every sample of a data set.

    The command downloads all files of LOCATION, a directory or URL, checks their sizes and checksums, and
    decodes all samples, images to their pixels and videos to their last frame. The exit status is 1 if it
    finds a problem, and 2 after an error. The data set is not changed.

    The output says what could not be checked: without checksums in the index, changed bytes are found only
    if a value can no longer be decoded. Downloaded files go to the directory for temporary files, which needs
    space for one shard per thread.
    """
    stream = name_format(
        Stream(
            remote=location,
            split=split,
            format=format_,
            download_retry=retries,
            storage_options=storage_options,
        )
    )
    with progress_bars() as on_progress:
        result = check(
            stream,
            num_threads=num_threads,
            allow_unsafe_types=allow_unsafe_types,
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps({"ok": result.ok, **asdict(result)}, indent=2))
    else:
        _show(result)
    context.exit(0 if result.ok else 1)


def _show(result: Verified) -> None:
    for problem in result.problems:
        sample = "" if problem.index is None else f"sample {problem.index}"
        # Most errors name their sample.
        sample = "" if problem.error.startswith(sample) else f", {sample}"
        say(f"shard {problem.shard} ({problem.file}){sample}: {problem.error}")
    if result.undecoded:
        names = ", ".join(result.undecoded)
        say(f"not decoded, since that can run code: {names} (--allow-unsafe-types)")
    count = len(result.problems)
    state = "OK" if result.ok else f"{count:,} problem{'s' if count > 1 else ''}"
    decoded = "samples decode" if result.ok else "samples"
    say(
        f"{result.url}: {state}: {many(result.shards, 'shard')}, {result.samples:,} {decoded}, "
        f"{result.bytes:,} bytes; {_of_checksums(result)}"
    )


def _of_checksums(result: Verified) -> str:
    names = ", ".join(result.checksums)
    if not result.without_checksums:
        return f"checksums: {names or 'none'}"
    unseen = "changed bytes in values cannot be found"
    if not names:
        return f"checksums: none, so {unseen}"
    lack = "shard lacks" if result.without_checksums == 1 else "shards lack"
    return f"checksums: {names}, but {result.without_checksums:,} {lack} them, where {unseen}"
