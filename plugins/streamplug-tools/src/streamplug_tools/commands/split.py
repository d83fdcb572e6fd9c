"""``streamplug split``: one data set as several."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug.config import parse_bytes, parse_count
from streamplug.plugin.location import join
from streamplug_tools import Output, split_by_fractions, split_by_size
from streamplug_tools.commands.options import (
    column_options,
    columns_of,
    numbers_of,
    output_of,
    output_options,
    show_written,
)


@click.command()
@click.argument("source")
@click.argument("out")
@click.option("--samples", help="Of each set, such as 100k.")
@click.option("--bytes", "bytes_", help="About how many of each set, not compressed, such as 10gb.")
@click.option("--fractions", help="NAME=SHARE, with commas between: train=0.9,val=0.1.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="For fractions.")
@column_options
@output_options
@source_options
def split(
    source: str,
    out: str,
    *,
    samples: str | None,
    bytes_: str | None,
    fractions: str | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the samples of SOURCE as several data sets in folders of OUT.

    By --samples or --bytes, each has those that follow the ones before, and is called by its number. By
    --fractions, each has a random part, in the order of SOURCE; no sample is in two.
    """
    if sum(each is not None for each in (samples, bytes_, fractions)) != 1:
        raise click.UsageError("give one of --samples, --bytes and --fractions")

    def place(name: str) -> Output:
        return output_of(join(out, name), options)

    sources, columns = streams_of([source], options), columns_of(options)
    with reporting() as report:
        if fractions is not None:
            shares = numbers_of("--fractions", fractions)
            written = split_by_fractions(
                sources, place, shares, seed=seed, columns=columns, report=report
            )
        else:
            written = split_by_size(
                sources,
                place,
                samples=None if samples is None else parse_count(samples, "--samples"),
                bytes=None if bytes_ is None else parse_bytes(bytes_, "--bytes"),
                columns=columns,
                report=report,
            )
    if as_json:
        click.echo(json.dumps({name: asdict(each) for name, each in written.items()}, indent=2))
    else:
        for each in written.values():
            show_written(each, as_json=False)
