"""Options of the commands of all data sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text
from streamplug_tools.commands.options import parse_hashes

from streamplug.display import say
from streamplug_datasets.convert.run import Settings, Split, SplitSummary, convert

FOLDER = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)


def converter(
    *,
    splits: Sequence[str] = (),
    compression: str = "none",
    hashes: str = "sha1,xxh64",
    size_limit: str,
    source: Any = FOLDER,
    whole: bool = True,
) -> Callable[[Callable[..., Sequence[Split]]], click.Command]:
    """Return a decorator that makes a command of a function, which returns the splits to write.

    The function is called with `root`, with `splits` and `allow_partial` if the command has these options,
    and with the values of its own options.

    Args:
        splits: Names of the splits of the data set.
        compression: Default of ``--compression``.
        hashes: Default of ``--hashes``.
        size_limit: Default of ``--size-limit``.
        source: Type of ``--in``.
        whole: Whether the function checks that the original is complete, which adds ``--allow-partial``.
    """

    def command(plan: Callable[..., Sequence[Split]]) -> click.Command:
        @wraps(plan)
        def run(
            *,
            out: str,
            compression: str,
            hashes: str,
            size_limit: str,
            processes: int | None,
            exist_ok: bool,
            as_json: bool,
            **options: Any,
        ) -> None:
            if "splits" in options:
                options["splits"] = _names(options["splits"], splits)
            planned = plan(**options)
            with Console(stderr=True).status("") as status:
                settings = Settings(
                    out=out,
                    compression=None if compression == "none" else compression,
                    hashes=tuple(parse_hashes(hashes) or ()),
                    size_limit=size_limit,
                    processes=processes,
                    exist_ok=exist_ok,
                    report=lambda split, done, count: status.update(
                        Text(f"{split}: {done:,} of {count:,} parts")
                    ),
                )
                summaries = convert(planned, settings)
            tell(summaries, as_json=as_json)

        made: Any = run
        for option in reversed(
            _options(splits, compression, hashes, size_limit, source, whole=whole)
        ):
            made = option(made)
        return click.command()(made)

    return command


def tell(summaries: Sequence[SplitSummary], *, as_json: bool) -> None:
    """Print what was written."""
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in summaries], indent=2))
        return
    for summary in summaries:
        say(
            f"{summary.out}: {summary.samples:,} samples, "
            f"{summary.shards:,} shard{'s'[: summary.shards != 1]}, "
            f"{summary.raw_bytes:,} bytes before compression"
        )
        for kind, count in summary.failed.items():
            say(f"  missing: {count:,} ({kind})")


def _names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"no split {name!r}; the splits are {', '.join(known)}", param_hint="--splits"
            )
    return names


def _options(
    splits: Sequence[str],
    compression: str,
    hashes: str,
    size_limit: str,
    source: Any,
    *,
    whole: bool,
) -> list[Any]:
    chosen = click.option(
        "--splits",
        default=",".join(splits),
        show_default=True,
        help="Splits to convert, separated by commas.",
    )
    partial = click.option(
        "--allow-partial",
        is_flag=True,
        help="Convert what is there, even if the original data set has more.",
    )
    return [
        click.option(
            "--in", "root", type=source, required=True, help="Location of the original data set."
        ),
        click.option(
            "--out",
            required=True,
            help="Location of the output, with a directory per split.",
        ),
        *([chosen] if splits else []),
        click.option(
            "--compression",
            default=compression,
            show_default=True,
            help="Compression, such as zstd:7, or none.",
        ),
        click.option(
            "--hashes",
            default=hashes,
            show_default=True,
            help="Algorithms of the file checksums, separated by commas, or none.",
        ),
        click.option(
            "--size-limit",
            default=size_limit,
            show_default=True,
            help="Maximum size of a shard before compression, such as 64mb.",
        ),
        click.option(
            "--processes",
            type=click.IntRange(min=0),
            help="Number of processes that write; with 0, the command writes without other processes.  "
            "[default: one per processor]",
        ),
        *([partial] if whole else []),
        click.option("--exist-ok", is_flag=True, help="Replace an existing data set."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    ]


seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Samples are stored in the order of numpy.random.default_rng(SEED).permutation(samples).",
)
"""The option of data sets that are stored in a random order."""
