"""``streamplug shuffle``: all samples in a random order."""

from __future__ import annotations

from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_tools import shuffle as write_shuffled
from streamplug_tools.commands.options import (
    column_options,
    columns_of,
    output_of,
    output_options,
    show_written,
)


@click.command()
@click.argument("source")
@click.argument("out")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order.")
@column_options
@output_options
@source_options
def shuffle(source: str, out: str, *, seed: int, as_json: bool, **options: Any) -> None:
    """Write the samples of SOURCE at OUT in a random order, in which any can follow any other.

    The order is computed, not held in memory. What is not a directory of raw shards on this machine is first
    fetched into the directory for temporary files, whole.
    """
    with reporting() as report:
        written = write_shuffled(
            streams_of([source], options),
            output_of(out, options),
            seed=seed,
            columns=columns_of(options),
            report=report,
        )
    show_written(written, as_json=as_json)
