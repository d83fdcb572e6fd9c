"""Options and results that the commands on data sets share."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource

from streamplug.display import say
from streamplug.errors import ConfigError
from streamplug_tools import Columns, Output, WriteResult
from streamplug_tools.commands.source_options import (
    combine_options,
    make_streams,
    source_options,
)
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.commands.value_types import COUNT, SIZE, refuse_repeated
from streamplug_tools.progress import progress_bars
from streamplug_tools.report.text_format import many

_COLUMNS = (
    click.option(
        "--columns",
        metavar="NAME:ENCODING,…",
        multiple=True,
        help="Encodings of columns, by their new names.  [default: those of the source, or the nearest "
        "ones that the format supports]",
    ),
    click.option("--rename", metavar="OLD=NEW,…", multiple=True, help="New names of columns."),
    click.option(
        "--select",
        metavar="NAME,…",
        multiple=True,
        help="Columns to keep, by their names in the source.  [default: all]",
    ),
    click.option(
        "--drop",
        metavar="NAME,…",
        multiple=True,
        help="Columns to leave out, by their names in the source.",
    ),
    click.option(
        "--allow-unsafe-types",
        is_flag=True,
        help="Also decode columns whose decoding can run code, such as pickle.",
    ),
)
_OUTPUT = (
    click.option(
        "--format",
        "format_",
        metavar="NAME",
        help="Format of the new data set, such as mds.  [default: that of the source]",
    ),
    click.option(
        "--compression",
        metavar="NAME",
        help="Compression, such as zstd:11, or none.  [default: that of the source]",
    ),
    click.option(
        "--hashes",
        metavar="NAME,…",
        multiple=True,
        callback=refuse_repeated("separate names by commas"),
        help="Algorithms of the file checksums, such as sha1, or none.  [default: those of the source, "
        "else xxh3_64]",
    ),
    click.option(
        "--size-limit",
        type=SIZE,
        default="64mb",
        show_default=True,
        help="Maximum size of a shard before compression, such as 64mb; without a unit, in bytes.",
    ),
    click.option(
        "--processes",
        type=click.IntRange(0),
        help="Number of processes that write, each at least one shard; with 0, the command writes without "
        "other processes.  "
        "[default: one per processor]",
    ),
    click.option(
        "--engine",
        metavar="NAME",
        default="local",
        show_default=True,
        help="Engine that runs the writers: local, ray, dask or spark.",
    ),
    storage_options(
        "--out-storage-options",
        "Storage options of the new data set, if they differ from --storage-options.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)

skip_bad_option = click.option(
    "--skip-bad",
    type=COUNT,
    default=0,
    show_default=True,
    metavar="N",
    help="Number of samples that may be left out because they cannot be read, computed or stored. They are "
    "listed.",
)
"""Option of a job that may leave out bad samples."""
_REPLACE = click.option("--exist-ok", is_flag=True, help="Replace an existing data set.")


_MAX_BAD_SHOWN = 20
_PAIRS = {
    "--columns": "NAME:ENCODING, such as text:str",
    "--fractions": "NAME=SHARE, such as train=0.9",
    "--rename": "OLD=NEW, such as image=jpg",
}


append_options = combine_options((*_COLUMNS, *_OUTPUT, source_options))
"""Options of a command that adds to a data set."""
job_options = combine_options((append_options, _REPLACE))
"""Options of a command that writes a data set."""


def run_job(
    job: Callable[..., WriteResult],
    locations: Sequence[str],
    out: str,
    options: Mapping[str, Any],
    **arguments: Any,
) -> None:
    """Run a job with the options of a command, and print its result.

    Args:
        job: Function that writes a data set.
        locations: URLs of the sources.
        out: URL of the new data set.
        options: Values of `job_options`.
        **arguments: Further arguments of the job.
    """
    with resumable(), progress_bars() as on_progress:
        result = job(
            make_streams(locations, options),
            make_output(out, options),
            columns=make_columns(options),
            on_progress=on_progress,
            **arguments,
        )
    print_result(result, as_json=options["as_json"])


def refuse_options(names: Collection[str], rule: str) -> None:
    """Refuse options of the current command that would have no effect.

    Args:
        names: Names of their parameters.
        rule: When they have an effect, such as "only with --out".

    Raises:
        click.UsageError: If one of them is on the command line, even with its default.
    """
    context = click.get_current_context()
    passed = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    ]
    if passed:
        raise click.UsageError(f"{', '.join(passed)}: {rule}")


@contextmanager
def resumable(then: str = "it goes on with the parts that are missing") -> Iterator[None]:
    """Say on Ctrl-C how to go on: what the same command `then` does."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"run the same command again: {then}") from None


def make_output(out: str, options: Mapping[str, Any]) -> Output:
    """Return the location and options of the new data set."""
    of_out = options["out_storage_options"]
    return Output(
        out,
        format=options["format_"],
        compression=options["compression"],
        hashes=parse_hashes(options["hashes"]),
        size_limit=options["size_limit"],
        processes=options["processes"],
        engine=options["engine"],
        exist_ok=options.get("exist_ok", False),
        storage_options=options["storage_options"] if of_out is None else of_out,
    )


def parse_hashes(text: str | None) -> list[str] | None:
    """Parse the value of ``--hashes``: names separated by commas, or ``none``; None stays None.

    Raises:
        ConfigError: If it has no name, such as that of an empty variable of a script.
    """
    if text is None:
        return None
    names = split_list([text])
    if not names:
        raise ConfigError(f"--hashes {text!r}: expected names of algorithms, or none")
    return [] if names == ["none"] else names


def make_columns(options: Mapping[str, Any]) -> Columns:
    """Return the columns of the new data set."""
    # Without a name, such as that of an empty variable of a script, nothing is selected, not everything.
    select = split_list(options["select"]) if options["select"] else None
    return Columns(
        encodings=parse_encodings(options["columns"]),
        rename=parse_pairs(split_list(options["rename"]), "--rename", "="),
        select=select,
        drop=split_list(options["drop"]),
        allow_unsafe_types=options["allow_unsafe_types"],
    )


def split_list(texts: Sequence[str]) -> list[str]:
    """Split texts at commas."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def parse_encodings(texts: Sequence[str]) -> dict[str, str]:
    """Parse encodings by name; a part without a colon belongs to the one before: ``x:ndarray:int8:2,3``."""
    specs: list[str] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        # Types such as struct<a: int64, b: string> have commas and colons of their own.
        within = bool(specs) and sum(map(specs[-1].count, "<([")) > sum(map(specs[-1].count, ">)]"))
        if specs and (within or ":" not in part):
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return parse_pairs(specs, "--columns", ":")


def parse_fractions(text: str) -> dict[str, float]:
    """Parse fractions by name of a directory: ``train=0.9,val=0.1``."""
    pairs = parse_pairs(split_list([text]), "--fractions", "=")
    for name in pairs:
        if name in {".", ".."} or "/" in name or "\\" in name:
            raise ConfigError(
                f"--fractions {text!r}: {name!r} is not the name of a directory in OUT"
            )
    try:
        return {name: float(value) for name, value in pairs.items()}
    except ValueError as error:
        raise ConfigError(f"--fractions {text!r}: {error}") from None


def parse_pairs(texts: Sequence[str], option: str, mark: str) -> dict[str, str]:
    """Parse names with a value each, such as ``old=new``.

    Args:
        texts: The pairs, each in a text of its own.
        option: Option that has them, which errors name.
        mark: Separator of name and value.

    Raises:
        ConfigError: If a name or a value is missing, or a name is given twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition(mark))
        if not (name and value):
            raise ConfigError(f"{option} {text!r}: expected {_PAIRS[option]}")
        if name in pairs:
            raise ConfigError(f"{option}: {name!r} is given twice")
        pairs[name] = value
    return pairs


def print_result(result: WriteResult, *, as_json: bool) -> None:
    """Print the result of a job."""
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2))
    else:
        for sample in result.bad[:_MAX_BAD_SHOWN]:
            say(f"left out: {sample.file}, row {sample.row}: {sample.reason}", err=True)
        if (more := len(result.bad) - _MAX_BAD_SHOWN) > 0:
            say(f"left out: {many(more, 'more sample')}, which --json lists", err=True)
        say(
            f"{result.url}: written; {many(result.shards, 'shard')}, {many(result.samples, 'sample')}, "
            f"{result.bytes:,} bytes"
        )
