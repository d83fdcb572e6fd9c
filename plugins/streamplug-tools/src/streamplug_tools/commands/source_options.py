"""Options of commands that read data sets, also for commands of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from streamplug.display import say
from streamplug.interfaces import public_url
from streamplug.stream import Stream
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.format_detection import detect_format

Command = TypeVar("Command", bound=Callable[..., Any])

_SOURCE = (
    click.option(
        "--split", metavar="NAME", help="Subdirectory of each source to read.  [default: none]"
    ),
    click.option(
        "--src-format",
        metavar="NAME",
        multiple=True,
        help="Format of sources that have no index.json, such as webdataset, or that have the index.json of "
        "another library, such as litdata. Pass it once for all sources, or once for each.  "
        "[default: detected]",
    ),
    storage_options(),
)


def combine_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    """Combine options into one decorator of a command."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


source_options = combine_options(_SOURCE)


def make_streams(
    locations: Sequence[str],
    options: Mapping[str, Any],
    last_storage_options: Mapping[str, Any] | None = None,
) -> list[Stream]:
    """Return the streams of locations, with one format for all or one for each.

    `last_storage_options` are those of the last location, where they differ.
    """
    formats: Sequence[str] = options["src_format"]
    if len(formats) > 1 and len(formats) != len(locations):
        raise click.UsageError(
            f"--src-format is given {len(formats)} times for {len(locations)} sources: give it once for all, "
            "or once for each in their order; it is ignored for a source with an index.json"
        )
    format_of: Sequence[str | None] = (
        formats if len(formats) > 1 else [next(iter(formats), None)] * len(locations)
    )
    storage_options = [options["storage_options"]] * len(locations)
    if last_storage_options is not None:
        storage_options[-1] = last_storage_options
    return [
        name_format(
            Stream(
                remote=location,
                split=options["split"],
                format=format_,
                storage_options=given,
            )
        )
        for location, format_, given in zip(locations, format_of, storage_options)
    ]


def name_format(stream: Stream) -> Stream:
    """Return a stream with the detected format of its files, which is printed, unless it needs none."""
    if stream.format is not None or (found := detect_format(stream)) is None:
        return stream
    say(
        f"{public_url(str(stream.remote))}: read as {found.name}, since {found.reason}; --src-format names "
        "another format",
        err=True,
    )
    return replace(stream, format=found.name)
