"""The command ``streamplug diff``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug_tools import Difference
from streamplug_tools import diff as compare
from streamplug_tools.commands.source_options import make_streams, source_options
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.progress import progress_bars


@click.command(
    epilog=examples(
        "streamplug diff data s3://bucket/copy",
        "streamplug diff data copy --values",
    )
)
@click.argument("one")
@click.argument("other")
@click.option("--values", is_flag=True, help="Compare values only, and ignore different encodings.")
@click.option(
    "--max-differences",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Maximum number of differing samples to print; all are counted.",
)
@click.option(
    "--allow-unsafe-types", is_flag=True, help="Also decode columns whose decoding can run code."
)
@source_options
@storage_options(
    "--other-storage-options",
    "Storage options of OTHER, if they differ from --storage-options.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def diff(
    context: click.Context,
    /,
    one: str,
    other: str,
    *,
    values: bool,
    max_differences: int,
    allow_unsafe_types: bool,
    other_storage_options: dict[str, Any] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare two data sets sample by sample.

    Columns and numbers of samples of ONE and OTHER are compared first. The exit status is 1 if they differ,
    and 2 after an error.
    """
    streams = make_streams([one, other], options, other_storage_options)
    with progress_bars() as on_progress:
        comparison = compare(
            *streams,
            values=values,
            max_differences=max_differences,
            allow_unsafe_types=allow_unsafe_types,
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps({"same": comparison.same, **asdict(comparison)}, indent=2))
    else:
        _show(comparison)
    context.exit(0 if comparison.same else 1)


def _show(difference: Difference) -> None:
    one, other = difference.urls
    for url, names in zip(difference.urls, difference.only):
        if names:
            say(f"only {url} has the columns {', '.join(names)}")
    for name, (old, new) in difference.encodings.items():
        say(f"column {name} is {old} in {one}, {new} in {other}")
    if difference.samples[0] != difference.samples[1]:
        say(f"{one} has {difference.samples[0]:,} samples, {other} has {difference.samples[1]:,}")
    for sample in difference.first:
        say(f"sample {sample.sample} differs in {', '.join(sample.columns)}")
    more = difference.differing - len(difference.first)
    if more and difference.first:
        say(f"and {more:,} more samples")
    say(f"{difference.compared:,} samples compared: {difference.differing:,} differ")
