"""The command ``streamplug view``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from streamplug_tools.commands.options import parse_pairs, refuse_options, split_list
from streamplug_tools.commands.source_options import make_streams
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.commands.value_types import refuse_repeated
from streamplug_tools.progress import progress_bars

from streamplug.cli import examples
from streamplug.display import make_console, rows_table, say
from streamplug_views import history
from streamplug_views.compaction import compact as compact_view
from streamplug_views.history import Version
from streamplug_views.view import View

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_engine = click.option(
    "--engine",
    metavar="NAME",
    default="local",
    show_default=True,
    help="Engine that evaluates expressions: local, ray, dask or spark.",
)
_message = click.option("--message", "-m", metavar="TEXT", default="", help="What changed.")


def _version(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else text


@click.group(
    epilog=examples(
        'streamplug view create data views/clean --where "len(text) > 100"',
        "streamplug view log s3://bucket/views/clean",
    )
)
def view() -> None:
    """Create and list versioned views, which select rows and add columns.

    A view refers to the shards of other data sets, so creating one does not rewrite them.
    """


@view.command(
    epilog=examples(
        'streamplug view create data views/clean --where "len(text) > 100"',
        "streamplug view create data views/clean --add scores --on id",
    )
)
@click.argument("source")
@click.argument("out")
@click.option(
    "--version", metavar="VERSION", help="Version or tag of SOURCE, if that is a view or a table."
)
@click.option(
    "--src-format",
    metavar="NAME",
    multiple=True,
    help="Format of data sets that have no index.json. Pass it once for all, or once for each: SOURCE, then "
    "those of --concat, --add and --exclude-keys.  [default: detected]",
)
@click.option(
    "--concat",
    metavar="LOCATION",
    multiple=True,
    help="Append the samples of this data set or view.",
)
@click.option(
    "--add", metavar="LOCATION", multiple=True, help="Add the columns of this data set or view."
)
@click.option(
    "--on",
    metavar="COLUMN",
    multiple=True,
    callback=refuse_repeated("the key is a single column"),
    help="Key column of --add and --exclude-keys. Without it, --add adds columns row by row.",
)
@click.option(
    "--missing",
    type=click.Choice(["error", "drop", "null"]),
    default="error",
    show_default=True,
    help="What to do with samples whose key is not in --add.",
)
@click.option(
    "--where",
    metavar="EXPRESSION",
    multiple=True,
    help="Keep samples for which this expression is true.",
)
@click.option(
    "--exclude-keys",
    metavar="LOCATION",
    multiple=True,
    help="Leave out samples whose key is in this data set.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1),
    help="Keep a random share of the samples, from 0 to 1.  [default: all]",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of --sample."
)
@click.option("--rename", metavar="OLD=NEW,…", multiple=True, help="New names of columns.")
@click.option("--drop", metavar="NAME,…", multiple=True, help="Columns to leave out.")
@_message
@_engine
@click.option(
    "--workspace",
    metavar="LOCATION",
    help="Directory or URL that all machines of the engine can write to.",
)
@click.option(
    "--allow-unsafe-types", is_flag=True, help="Also decode columns whose decoding can run code."
)
@storage_options()
@_json
def create(source: str, out: str, *, as_json: bool, message: str, **options: Any) -> None:
    """Write a view of a data set or of a view, as the next version of OUT.

    Operations are applied in the order of the options above.
    """
    _check_use(options)
    others = (*options["concat"], *options["add"], *options["exclude_keys"])
    formats = [
        stream.format for stream in make_streams([source, *others], {**options, "split": None})
    ]
    with progress_bars() as on_progress:
        made = View.of(
            source,
            version=_version(options["version"]),
            format=formats[0],
            storage_options=options["storage_options"],
            engine=options["engine"],
            workspace=options["workspace"],
            allow_unsafe_types=options["allow_unsafe_types"],
            on_progress=on_progress,
        )
        made = _apply(made, options, iter(formats[1:]))
        commit = made.commit(out, message=message)
    if as_json:
        steps = [asdict(step) for step in made.steps]
        click.echo(json.dumps({**asdict(commit), "steps": steps}, indent=2))
        return
    for step in made.steps:
        say(f"{step.samples:>14,} samples after {step.step}")
    say(f"{commit.url}: version {commit.version} written, {commit.samples:,} samples")


def _check_use(options: dict[str, Any]) -> None:
    """Raise if an option has no effect, or needs another one."""
    if options["exclude_keys"] and options["on"] is None:
        raise click.UsageError("--exclude-keys needs --on, the column of the keys")
    if not (options["add"] or options["exclude_keys"]):
        refuse_options({"on"}, "only with --add or --exclude-keys")
    if not options["add"] or options["on"] is None:
        refuse_options({"missing"}, "only with --add and --on")
    if options["sample"] is None:
        refuse_options({"seed"}, "only with --sample")
    if not options["where"]:
        refuse_options({"engine", "workspace"}, "only with --where")


def _apply(made: View, options: dict[str, Any], formats: Iterator[str | None]) -> View:
    for location, format_ in zip(options["concat"], formats):
        made = made.concat(location, format=format_)
    for location, format_ in zip(options["add"], formats):
        made = made.add(location, on=options["on"], missing=options["missing"], format=format_)
    for expression in options["where"]:
        made = made.where(expression)
    for location, format_ in zip(options["exclude_keys"], formats):
        made = made.exclude(keys=location, on=options["on"], format=format_)
    if options["sample"] is not None:
        made = made.sample(options["sample"], seed=options["seed"])
    if names := parse_pairs(split_list(options["rename"]), "--rename", "="):
        made = made.rename(names)
    if names_to_drop := split_list(options["drop"]):
        made = made.drop(names_to_drop)
    return made


@view.command(
    epilog=examples(
        "streamplug view log views/clean",
        "streamplug view log s3://bucket/views/clean --json",
    )
)
@click.argument("location")
@storage_options()
@_json
def log(location: str, *, as_json: bool, **options: Any) -> None:
    """List the versions of a view, latest first."""
    versions = history.log(location, **options)
    if as_json:
        click.echo(json.dumps([asdict(version) for version in versions], indent=2))
        return
    headings = ("version", "time", "samples", "message", "tags")
    make_console().print(rows_table(headings, map(_cells, versions)))


def _cells(version: Version) -> list[str]:
    return [
        str(version.version),
        version.time,
        f"{version.samples:,}",
        version.message,
        ", ".join(version.tags),
    ]


@view.command(
    epilog=examples(
        "streamplug view show views/clean",
        "streamplug view show s3://bucket/views/clean 3",
    )
)
@click.argument("location")
@click.argument("version", required=False)
@storage_options()
@_json
def show(location: str, version: str | None, *, as_json: bool, **options: Any) -> None:
    """Show a version of a view, and the steps that made it.

    VERSION is a number or a tag; without it, the latest is shown.
    """
    shown = history.show(location, _version(version), **options)
    if as_json:
        click.echo(json.dumps(asdict(shown), indent=2))
        return
    tags = f" ({', '.join(shown.tags)})" if shown.tags else ""
    say(f"version {shown.version}{tags}, {shown.time}, {shown.samples:,} samples")
    if shown.message:
        say(shown.message)
    say(f"data sets: {', '.join(shown.sources)}")
    for step in shown.steps:
        say(f"{step.samples:>14,} samples after {step.step}")


@view.command(
    epilog=examples(
        "streamplug view diff views/clean 1 2",
        "streamplug view diff s3://bucket/views/clean release",
    )
)
@click.argument("location")
@click.argument("old")
@click.argument("new", required=False)
@storage_options()
@_json
def diff(location: str, old: str, new: str | None, *, as_json: bool, **options: Any) -> None:
    """Compare two versions of a view.

    OLD and NEW are numbers or tags; without NEW, OLD is compared with the latest.
    """
    change = history.diff(location, _version(old) or 0, _version(new), **options)
    if as_json:
        click.echo(json.dumps(asdict(change), indent=2))
        return
    before, after = change.samples
    say(f"{before:,} and {after:,} samples: {change.added:,} added, {change.removed:,} removed")
    _show_columns("added", change.columns_added)
    _show_columns("removed", change.columns_removed)


def _show_columns(what: str, names: Sequence[str]) -> None:
    if names:
        say(f"columns {what}: {', '.join(names)}")


@view.command(
    epilog=examples(
        "streamplug view tag views/clean release",
        "streamplug view tag s3://bucket/views/clean release 3 --move",
    )
)
@click.argument("location")
@click.argument("name")
@click.argument("version", type=int, required=False)
@click.option("--move", is_flag=True, help="Move an existing tag.")
@storage_options()
def tag(location: str, name: str, version: int | None, *, move: bool, **options: Any) -> None:
    """Name a version of a view.

    Without VERSION, the latest version gets the name.
    """
    history.tag(location, name, version, move=move, **options)


@view.command(
    epilog=examples(
        "streamplug view expire views/clean --keep 10",
        "streamplug view expire s3://bucket/views/clean --keep 10 --yes",
    )
)
@click.argument("location")
@click.option("--keep", type=click.IntRange(1), required=True, help="Latest versions to keep.")
@click.option(
    "--yes",
    is_flag=True,
    help="Remove the versions. Without this option, only print what would be removed.",
)
@storage_options()
@_json
def expire(location: str, *, keep: int, yes: bool, as_json: bool, **options: Any) -> None:
    """Remove old versions of a view that have no tag, and their files.

    Files that other versions need stay.
    """
    versions, files = history.expire(location, keep=keep, dry_run=not yes, **options)
    if as_json:
        click.echo(json.dumps({"removed": yes, "versions": versions, "files": files}, indent=2))
        return
    what = "removed" if yes else "would be removed; pass --yes to remove them"
    numbers = ", ".join(map(str, versions)) or "none"
    say(f"versions {numbers}, and {len(files):,} files: {what}")


@view.command(
    epilog=examples(
        "streamplug view compact views/clean compacted",
        "streamplug view compact s3://bucket/views/clean s3://bucket/clean-2",
    )
)
@click.argument("location")
@click.argument("out")
@_message
@click.option(
    "--processes", type=click.IntRange(0), help="Number of processes.  [default: one per processor]"
)
@storage_options()
@_json
def compact(
    location: str,
    out: str,
    *,
    message: str,
    processes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the samples of a view to a new data set, and a version that refers only to it.

    You can then remove the data sets that the view referred to before, and with them the samples that it
    leaves out.
    """
    with progress_bars() as on_progress:
        commit = compact_view(
            location, out, message=message, processes=processes, on_progress=on_progress, **options
        )
    if as_json:
        click.echo(json.dumps(asdict(commit), indent=2))
    else:
        say(f"{commit.url}: version {commit.version} written, {commit.samples:,} samples")
