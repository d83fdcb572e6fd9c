"""The command ``streamplug inspect``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from textwrap import indent
from typing import Any

import click
from rich.table import Table

from streamplug.cli import examples
from streamplug.display import make_console, pairs_table, rows_table, say
from streamplug.errors import ConfigError
from streamplug_tools import DatasetInfo, as_lines
from streamplug_tools import inspect as look_at
from streamplug_tools.commands.options import refuse_options
from streamplug_tools.commands.source_options import make_streams, source_options
from streamplug_tools.json_lines import strict_line
from streamplug_tools.report import page_about

_MAX_CELL_CHARS = 60
_MAX_BYTES_IN_MEMORY = 4 << 20
_CHARS_PER_WRITE = 1 << 20
_PAGE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(
    epilog=examples(
        "streamplug inspect s3://bucket/set --samples 0",
        "streamplug inspect data --html data.html",
    )
)
@click.argument("source")
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Number of samples to show.",
)
@source_options
@click.option(
    "--html", "page", type=_PAGE, help="Write an HTML page about the data set to this file."
)
@click.option(
    "--measured",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Approximate number of samples whose sizes, lengths and values the command measures for the HTML "
    "page.",
)
@click.option(
    "--allow-unsafe-types",
    is_flag=True,
    help="For the HTML page, also decode columns whose decoding can run code, such as pickle.",
)
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
    """Show columns, shards, sizes and a few samples of a data set."""
    if page is None:
        refuse_options({"measured", "allow_unsafe_types"}, "only with --html")
    stream = make_streams([source], options)[0]
    if page is not None:
        text = page_about(
            stream, samples=samples, measured=measured, allow_unsafe_types=allow_unsafe_types
        )
        try:
            page.write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(f"--html {page}: {error.strerror}") from None
        if not as_json:
            say(f"{page}: written")
            return
    info = look_at(stream, samples=0)
    lines = as_lines(stream, end=samples) if samples and info.samples else iter(())
    if as_json:
        _print_json(info, lines)
        return
    console = make_console()
    for table in _tables(info, lines):
        console.print(table)


def _print_json(info: DatasetInfo, lines: Iterator[str]) -> None:
    """Print one JSON document when all samples are read, which may not fit into memory."""
    text = json.dumps({**asdict(info), "first": []}, indent=2)
    with SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY, "w+", encoding="utf-8", newline="") as file:
        file.write(text.removesuffix("]\n}"))
        between = ""
        for line in lines:
            sample = json.dumps(json.loads(strict_line(line)), indent=2)
            file.write(f"{between}\n{indent(sample, '    ')}")
            between = ","
        file.write("\n  ]\n}" if between else "]\n}")
        file.seek(0)
        while part := file.read(_CHARS_PER_WRITE):
            click.echo(part, nl=False)
    click.echo()


def _tables(info: DatasetInfo, lines: Iterator[str]) -> Iterator[Table]:
    yield pairs_table(
        [
            ("data set", info.url),
            *([("version", info.version)] if info.version else []),
            ("samples", f"{info.samples:,}"),
            ("shards", f"{info.shards:,}"),
            ("bytes", f"{info.stored_bytes:,} stored, {info.raw_bytes:,} raw"),
            ("bytes of a shard", _spread(info.shard_bytes)),
            ("samples of a shard", _spread(info.shard_samples)),
        ]
    )
    for kind in info.kinds:
        yield pairs_table(
            [
                ("format", kind.format),
                ("compression", kind.compression or "none"),
                ("hashes", ", ".join(kind.hashes) or "none"),
                *([("of the shards", f"{kind.shards:,}")] if len(info.kinds) > 1 else []),
            ]
        )
        yield rows_table(("column", "encoding"), kind.columns.items())
    if info.origin is not None:
        yield rows_table(
            ("column", "data set"), ((n, ", ".join(u)) for n, u in info.origin.columns.items())
        )
        yield rows_table(("step", "samples"), ((s, f"{n:,}") for s, n in info.origin.steps))
    samples = map(json.loads, lines)
    if first := next(samples, None):
        # Keep only the shortened values of each sample in memory.
        rows = ([_short(sample[name]) for name in first] for sample in chain([first], samples))
        yield rows_table(first, rows)


def _spread(values: tuple[int, int, int]) -> str:
    minimum, median, maximum = values
    return f"{median:,} ({minimum:,} to {maximum:,})"


def _short(value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        with suppress(ValueError):  # else it is a value of the data set that only looks like bytes
            return f"{len(b64decode(value['base64'], validate=True)):,} bytes"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"
