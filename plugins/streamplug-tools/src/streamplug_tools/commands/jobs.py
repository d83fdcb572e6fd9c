"""Commands that write data sets from others."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

import streamplug_tools as tools
from streamplug.cli import examples
from streamplug.display import say
from streamplug.errors import ConfigError, OutputExistsError
from streamplug.index import INDEX_NAME
from streamplug.plugin import join as join_url
from streamplug.plugin import open_storage
from streamplug_tools.commands.options import (
    append_options,
    job_options,
    make_columns,
    make_output,
    parse_fractions,
    print_result,
    refuse_options,
    resumable,
    run_job,
    skip_bad_option,
)
from streamplug_tools.commands.source_options import make_streams
from streamplug_tools.commands.value_types import COUNT, SIZE, refuse_repeated
from streamplug_tools.progress import progress_bars
from streamplug_tools.report.text_format import many


@click.command(
    epilog=examples(
        "streamplug convert data lines --format jsonl",
        "streamplug convert tars s3://bucket/set --compression zstd:11",
    )
)
@click.argument("source")
@click.argument("out")
@skip_bad_option
@job_options
def convert(source: str, out: str, *, skip_bad: int, **options: Any) -> None:
    """Write a data set in another format, or with other columns.

    SOURCE and OUT are directories or URLs. Values whose encoding does not change are copied without being
    decoded: a JPEG file keeps its bytes. If the command is killed, run it again. It continues where it
    stopped, and writes the same bytes as a run that was not interrupted.
    """
    run_job(tools.convert, [source], out, options, skip_bad=skip_bad)


@click.command(
    epilog=examples(
        "streamplug append data everything",
        "streamplug append today.jsonl s3://bucket/everything --src-format jsonl",
    )
)
@click.argument("source")
@click.argument("out")
@append_options
def append(source: str, out: str, **options: Any) -> None:
    """Add the samples of a data set to another one.

    OUT is made if it does not exist. Its new samples come after the existing ones, and have their format,
    compression and encodings. If the command is killed, run it again. The samples of SOURCE are added once:
    another run adds nothing until SOURCE changes.
    """
    with resumable(), progress_bars() as on_progress:
        result = tools.append(
            make_streams([source], options),
            make_output(out, options),
            columns=make_columns(options),
            on_progress=on_progress,
        )
    if options["as_json"]:
        click.echo(json.dumps(asdict(result), indent=2))
        return
    added = f"{many(result.appended, 'sample')} added" if result.appended else "nothing to add"
    say(
        f"{result.url}: {added}; {many(result.shards, 'shard')}, {many(result.samples, 'sample')}, "
        f"{result.bytes:,} bytes"
    )


@click.command(
    epilog=examples(
        "streamplug shuffle data shuffled --seed 1",
        "streamplug shuffle s3://bucket/set s3://bucket/shuffled --processes 32",
    )
)
@click.argument("source")
@click.argument("out")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the order."
)
@job_options
def shuffle(source: str, out: str, *, seed: int, **options: Any) -> None:
    """Write samples in a random order.

    Any sample can follow any other. The order is computed on the fly and not held in memory. Unless SOURCE
    is a local directory of uncompressed shards, the command first downloads or decompresses all shards into
    the directory for temporary files.
    """
    run_job(tools.shuffle, [source], out, options, seed=seed)


@click.command(
    epilog=examples(
        'streamplug sort data sorted --by "len(text)"',
        "streamplug sort s3://bucket/set s3://bucket/latest --by time --descending",
    )
)
@click.argument("source")
@click.argument("out")
@click.option(
    "--by",
    metavar="EXPRESSION",
    required=True,
    multiple=True,
    callback=refuse_repeated("a tuple is a key of several values, such as '(a, b)'"),
    help="Python expression to sort by, such as the name of a column.",
)
@click.option("--descending", is_flag=True, help="Sort from the largest value to the smallest.")
@job_options
def sort(source: str, out: str, *, by: str, descending: bool, **options: Any) -> None:
    """Write samples sorted by an expression.

    Samples with equal values keep their order. The values are sorted in files, so they need not fit into
    memory.
    """
    run_job(tools.sort, [source], out, options, by=by, descending=descending)


@click.command(
    epilog=examples(
        'streamplug select data long --where "len(text) > 100"',
        "streamplug select data cats --where \"label == 'cat'\"",
    )
)
@click.argument("source")
@click.argument("out")
@click.option(
    "--where",
    metavar="EXPRESSION",
    required=True,
    multiple=True,
    callback=refuse_repeated("join conditions by 'and' or 'or'"),
    help="Python expression that selects samples, such as 'len(text) > 100'.",
)
@skip_bad_option
@job_options
def select(source: str, out: str, *, where: str, skip_bad: int, **options: Any) -> None:
    """Write the samples for which an expression is true.

    The expression is Python, limited to what depends on nothing but the sample. It can use the names of
    columns, sample (a dict of all columns), number (the position of the sample, from 0), and functions such
    as len and xxh64. The page Expressions of the documentation lists them.
    """
    run_job(tools.select, [source], out, options, where=where, skip_bad=skip_bad)


@click.command(
    epilog=examples(
        "streamplug dedup data distinct --by id",
        'streamplug dedup s3://bucket/set s3://bucket/distinct --by "xxh64(text)"',
    )
)
@click.argument("source")
@click.argument("out")
@click.option(
    "--by",
    metavar="EXPRESSION",
    required=True,
    multiple=True,
    callback=refuse_repeated("a tuple is a key of several values, such as '(a, b)'"),
    help="Python expression of the key, such as the name of a column.",
)
@job_options
def dedup(source: str, out: str, *, by: str, **options: Any) -> None:
    """Write the first sample of each key.

    Samples keep their order, and those whose key is None all stay. The command sorts the keys in files, so
    they need not fit into memory.
    """
    run_job(tools.dedup, [source], out, options, by=by)


@click.command(
    epilog=examples(
        "streamplug join data scores --by id --out joined",
        "streamplug join s3://bucket/a s3://bucket/b --by key --out s3://bucket/ab",
    )
)
@click.argument("sources", metavar="SOURCE SOURCE...", nargs=-1, required=True)
@click.option(
    "--out", "-o", metavar="LOCATION", required=True, help="Directory or URL in which to write."
)
@click.option(
    "--by",
    metavar="EXPRESSION",
    required=True,
    multiple=True,
    callback=refuse_repeated("a tuple is a key of several values, such as '(a, b)'"),
    help="Python expression of the key, such as the name of a column.",
)
@click.option(
    "--how",
    type=click.Choice(["inner", "left"]),
    default="inner",
    show_default=True,
    help="Whether to omit samples of the first SOURCE whose key is missing in another (inner), or to write "
    "None for the columns of that other (left).",
)
@skip_bad_option
@job_options
def join(
    sources: tuple[str, ...], *, out: str, by: str, how: str, skip_bad: int, **options: Any
) -> None:
    """Join the columns of several data sets by a key.

    Samples come in the order of the first SOURCE. The command sorts the keys in files, so they need not fit
    into memory.
    """
    run_job(tools.join, sources, out, options, by=by, how=how, skip_bad=skip_bad)


@click.command(
    epilog=examples(
        'streamplug proc data counted --set "size=len(text)" --columns size:int32',
        "streamplug proc data dogs -- sed s/cat/dog/",
    )
)
@click.argument("source")
@click.argument("out")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--set",
    "expressions",
    metavar="NAME=EXPRESSION",
    multiple=True,
    help="Set a column to the value of an expression; can be repeated.",
)
@skip_bad_option
@job_options
def proc(
    source: str,
    out: str,
    command: tuple[str, ...],
    *,
    expressions: tuple[str, ...],
    skip_bad: int,
    **options: Any,
) -> None:
    """Compute columns, or change samples with another program.

    Expressions are any Python code, which runs with your permissions: unlike those of select, they decide
    over no samples. They can use xxh64 and the modules json, math, np and re. A new column needs an encoding:
    --columns NAME:ENCODING.

    COMMAND, after --, reads a line of JSON for each sample and writes a line for each sample of the new data
    set. It is started once for each part of at most about eight shards. If its output has other columns than
    its input, list all columns of the output, with their encodings, in --columns.
    """
    if bool(expressions) == bool(command):
        raise click.UsageError("give either --set or a COMMAND after --")
    if command:
        run_job(tools.process_with, [source], out, options, command=command, skip_bad=skip_bad)
    else:
        values: dict[str, str] = {}
        for text in expressions:
            name, expression = _parse_expression(text)
            if name in values:
                raise ConfigError(f"--set: {name!r} is given twice")
            values[name] = expression
        run_job(tools.process, [source], out, options, expressions=values, skip_bad=skip_bad)


def _parse_expression(text: str) -> tuple[str, str]:
    name, mark, expression = text.partition("=")
    if not (name.strip() and mark):
        raise ConfigError(f"--set {text!r}: expected NAME=EXPRESSION")
    return name.strip(), expression


@click.command(
    epilog=examples(
        "streamplug split data parts --fractions train=0.9,val=0.1 --by id",
        "streamplug split s3://bucket/set s3://bucket/parts --samples 100k",
    )
)
@click.argument("source")
@click.argument("out")
@click.option("--samples", type=COUNT, help="Number of samples of each data set, such as 100k.")
@click.option(
    "--bytes",
    "bytes_",
    type=SIZE,
    help="Approximate uncompressed size of each data set, such as 10gb; without a unit, in bytes.",
)
@click.option(
    "--fractions",
    metavar="NAME=SHARE,…",
    multiple=True,
    callback=refuse_repeated("separate shares by commas"),
    help="Names and shares of random parts, such as train=0.9,val=0.1.",
)
@click.option(
    "--by",
    metavar="EXPRESSION",
    multiple=True,
    callback=refuse_repeated("a tuple is a key of several values, such as '(a, b)'"),
    help="Python expression of a key, such as the name of a column. Samples of one key are in one part, and "
    "stay there when the data set grows.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed for --fractions."
)
@job_options
def split(
    source: str,
    out: str,
    *,
    samples: int | None,
    bytes_: int | None,
    fractions: str | None,
    by: str | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Split a data set into several data sets.

    Pass one of --samples, --bytes and --fractions. The command writes each data set to a directory in OUT.
    With --samples or --bytes, the data sets are consecutive parts of SOURCE, named by number. With
    --fractions, each data set is a random part, in the order of SOURCE, and no sample is in two of them. With
    --by, the part of a sample depends on nothing but its key, so a later split of a data set that has grown
    puts no sample into another part.
    """
    if sum(item is not None for item in (samples, bytes_, fractions)) != 1:
        raise click.UsageError("give one of --samples, --bytes and --fractions")
    if fractions is None:
        refuse_options({"by", "seed"}, "only with --fractions")

    def outputs(name: str) -> tools.Output:
        return make_output(join_url(out, name), options)

    streams, columns = make_streams([source], options), make_columns(options)
    with resumable(), progress_bars() as on_progress:
        if fractions is not None:
            shares = parse_fractions(fractions)
            results = tools.split_by_fractions(
                streams,
                outputs,
                shares,
                by=by,
                seed=seed,
                columns=columns,
                on_progress=on_progress,
            )
        else:
            results = tools.split_by_size(
                streams,
                outputs,
                samples=samples,
                bytes=bytes_,
                columns=columns,
                on_progress=on_progress,
            )
    if as_json:
        click.echo(json.dumps({name: asdict(item) for name, item in results.items()}, indent=2))
    else:
        for result in results.values():
            print_result(result, as_json=False)
    if fractions is None:
        _check_last(outputs(f"{len(results):05d}"))


def _check_last(following: tools.Output) -> None:
    """Refuse a data set with the number after the last, whose samples would be in others, too."""
    storage = open_storage(following.out, following.storage_options)
    if storage.exists(INDEX_NAME):
        raise OutputExistsError(
            f"{storage.url} was not written by this command but before it: it and those that follow have "
            "samples of an earlier split; remove them"
        )
