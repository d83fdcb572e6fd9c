"""The command ``streamplug inspect``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import Any

import click
from rich.table import Table

from streamplug.cli.options import make_streams, source_options
from streamplug.display.tables import make_console, pairs_table, rows_table
from streamplug_tools import DatasetInfo, as_lines
from streamplug_tools import inspect as look_at
from streamplug_tools.report import page_about

_MAX_CELL_CHARS = 60
_PAGE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("source")
@click.option(
    "--samples", type=click.IntRange(0), default=3, show_default=True, help="How many to show."
)
@source_options
@click.option("--html", "page", type=_PAGE, help="Write a page about it to this file.")
@click.option(
    "--measured",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Of about how many samples a page tells sizes, lengths and values.",
)
@click.option("--allow-unsafe-types", is_flag=True, help="Decode what can run code for a page.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def inspect(
    source: str,
    *,
    samples: int,
    page: Path | None,
    measured: int,
    allow_unsafe_types: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Tell what the data set at SOURCE is: its columns, shards, sizes, and a few of its samples."""
    stream = make_streams([source], options)[0]
    if page is not None:
        text = page_about(
            stream, samples=samples, measured=measured, allow_unsafe_types=allow_unsafe_types
        )
        try:
            page.write_text(text, "utf-8")
        except OSError as error:
            raise click.FileError(str(page), error.strerror) from None
        if not as_json:
            click.echo(f"{page}: written")
            return
    found = look_at(stream, samples=0)
    lines = as_lines(stream, end=samples) if samples and found.samples else iter(())
    if as_json:
        _print_json(found, lines)
        return
    console = make_console()
    for table in _tables(found, lines):
        console.print(table)


def _print_json(found: DatasetInfo, lines: Iterator[str]) -> None:
    """Print one JSON document, sample by sample, as all samples may not fit into memory."""
    told = json.dumps({**asdict(found), "first": []}, indent=2)
    click.echo(told.removesuffix("]\n}"), nl=False)
    between = ""
    for line in lines:
        sample = json.dumps(json.loads(line), indent=2)
        click.echo(f"{between}\n{indent(sample, '    ')}", nl=False)
        between = ","
    click.echo("\n  ]\n}" if between else "]\n}")


def _tables(found: DatasetInfo, lines: Iterator[str]) -> Iterator[Table]:
    yield pairs_table(
        [
            ("data set", found.url),
            ("samples", f"{found.samples:,}"),
            ("shards", f"{found.shards:,}"),
            ("bytes", f"{found.stored_bytes:,} stored, {found.raw_bytes:,} raw"),
            ("bytes of a shard", _spread(found.shard_bytes)),
            ("samples of a shard", _spread(found.shard_samples)),
        ]
    )
    for kind in found.kinds:
        yield pairs_table(
            [
                ("format", kind.format),
                ("compression", kind.compression or "none"),
                ("hashes", ", ".join(kind.hashes) or "none"),
                *([("of the shards", f"{kind.shards:,}")] if len(found.kinds) > 1 else []),
            ]
        )
        yield rows_table(("column", "encoding"), kind.columns.items())
    samples = map(json.loads, lines)
    if first := next(samples, None):
        # Keep only the shortened values of each sample in memory.
        rows = ([_short(sample[name]) for name in first] for sample in chain([first], samples))
        yield rows_table(first, rows)


def _spread(values: tuple[int, int, int]) -> str:
    least, median, most = values
    return f"{median:,} ({least:,} to {most:,})"


def _short(value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return f"{len(b64decode(value['base64'])):,} bytes"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"
