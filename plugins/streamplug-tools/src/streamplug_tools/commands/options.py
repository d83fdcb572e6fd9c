"""Options that the commands on data sets share, and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from streamplug.cli.options import combine_options
from streamplug.cli.storage_options import storage_options
from streamplug.errors import ConfigError
from streamplug_tools import Columns, Output, Written

_COLUMNS = (
    click.option("--columns", help="Encodings: NAME:ENCODING, with commas between.", multiple=True),
    click.option("--rename", help="OLD=NEW, with commas between.", multiple=True),
    click.option("--select", help="Columns to take, by their old names.", multiple=True),
    click.option("--drop", help="Columns to leave out, likewise.", multiple=True),
    click.option("--allow-unsafe-types", is_flag=True, help="Decode what can run code, too."),
)
_OUTPUT = (
    click.option("--format", "format_", help="Of the new set.  [default: that of the source]"),
    click.option("--compression", help="Such as zstd:11, or none.  [default: as the source]"),
    click.option(
        "--hashes",
        help="Digests, with commas between, or none.  [default: as the source, or xxh3_64]",
    ),
    click.option("--size-limit", default="64mb", show_default=True, help="Of a raw shard."),
    click.option("--processes", type=click.IntRange(0), help="[default: one for each processor]"),
    click.option(
        "--engine", default="local", show_default=True, help="Who writes: ray, dask, spark."
    ),
    click.option("--exist-ok", is_flag=True, help="Replace another data set that is there."),
    storage_options("--out-storage-options", "Those of the new set, where they differ."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


_PAIRS = {
    "--columns": "NAME:ENCODING, such as text:str",
    "--fractions": "NAME=SHARE, such as train=0.9",
    "--rename": "OLD=NEW, such as image=jpg",
}


column_options = combine_options(_COLUMNS)
output_options = combine_options(_OUTPUT)


def output_of(out: str, options: Mapping[str, Any]) -> Output:
    """Return where a user wants a new data set, and how."""
    of_out = options["out_storage_options"]
    return Output(
        out,
        format=options["format_"],
        compression=options["compression"],
        hashes=_hashes(options["hashes"]),
        size_limit=options["size_limit"],
        processes=options["processes"],
        engine=options["engine"],
        exist_ok=options["exist_ok"],
        storage_options=options["storage_options"] if of_out is None else of_out,
    )


def _hashes(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text.strip() == "none" else parts_of([text])


def columns_of(options: Mapping[str, Any]) -> Columns:
    """Return which columns a user wants."""
    select = parts_of(options["select"])
    return Columns(
        encodings=encodings_of(options["columns"]),
        rename=dict(_pair(text, "--rename", "=") for text in parts_of(options["rename"])),
        select=select or None,
        drop=parts_of(options["drop"]),
        allow_unsafe_types=options["allow_unsafe_types"],
    )


def parts_of(texts: Sequence[str]) -> list[str]:
    """Return what stands between commas."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def encodings_of(texts: Sequence[str]) -> dict[str, str]:
    """Return encodings by name; what has no colon belongs to the one before: ``x:ndarray:int8:2,3``."""
    found: list[str] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        # Types such as struct<a: int64, b: string> have commas and colons of their own.
        within = bool(found) and sum(map(found[-1].count, "<([")) > sum(map(found[-1].count, ">)]"))
        if found and (within or ":" not in part):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return dict(_pair(text, "--columns", ":") for text in found)


def numbers_of(option: str, text: str) -> dict[str, float]:
    """Return numbers by name: ``train=0.9,val=0.1``."""
    found = dict(_pair(part, option, "=") for part in parts_of([text]))
    try:
        return {name: float(value) for name, value in found.items()}
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: {error}") from None


def _pair(text: str, option: str, mark: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not (name and found and value):
        raise ConfigError(f"{option} {text!r}: expected {_PAIRS[option]}")
    return name.strip(), value.strip()


def show_written(written: Written, *, as_json: bool) -> None:
    """Print what was written."""
    if as_json:
        click.echo(json.dumps(asdict(written), indent=2))
    else:
        click.echo(
            f"{written.url}: written; {written.shards:,} shards, {written.samples:,} samples, "
            f"{written.bytes:,} bytes"
        )
