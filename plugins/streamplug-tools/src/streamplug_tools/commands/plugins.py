"""The command ``streamplug plugins``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import click
from rich.text import Text

import streamplug
from streamplug.cli import examples
from streamplug.display import make_console, rows_table
from streamplug.errors import PluginError
from streamplug.plugin import (
    AMBIGUOUS,
    BROKEN,
    KINDS,
    OK,
    REJECTED,
    PluginEntry,
    inventory,
    load_class,
)

INSTALLED = "installed"
"""Status of an entry whose class was not imported."""
_PROBLEMS = {BROKEN, REJECTED, AMBIGUOUS}
_STYLES = {OK: "green", "disabled": "dim", BROKEN: "red"}


@click.command(
    epilog=examples(
        "streamplug plugins --kind storage",
        "streamplug plugins --check",
    )
)
@click.option(
    "--kind", type=click.Choice(list(KINDS)), help="List plugins of this kind only.  [default: all]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option(
    "--check",
    is_flag=True,
    help="Import every class; exit with status 1 if any plugin is broken, rejected or ambiguous.",
)
@click.pass_context
def plugins(context: click.Context, kind: str | None, *, as_json: bool, check: bool) -> None:
    """List built-in and installed plugins.

    Without --check, the command imports no class and lists usable plugins as "installed". With --check, it
    imports every class and lists usable plugins as "ok".
    """
    entries = sorted((*_builtin_entries(), *inventory().entries), key=_sort_key)
    # A broken plugin without a kind may have provided names of this kind.
    entries = [entry for entry in entries if kind is None or entry.kind in (kind, "")]
    entries = [_check_entry(entry) if check else _skip_check(entry) for entry in entries]
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
    else:
        _print_table(entries)
    if check and any(entry.status in _PROBLEMS for entry in entries):
        context.exit(1)


def _builtin_entries() -> Iterator[PluginEntry]:
    for kind in KINDS.values():
        for name, target in kind.builtin.items():
            yield PluginEntry(kind.name, name, "streamplug", streamplug.__version__, target)


def _sort_key(entry: PluginEntry) -> tuple[int, str, str]:
    kinds = list(KINDS)
    kind = kinds.index(entry.kind) if entry.kind in KINDS else len(kinds)
    return (kind, entry.name, entry.distribution)


def _skip_check(entry: PluginEntry) -> PluginEntry:
    return replace(entry, status=INSTALLED) if entry.status == OK else entry


def _check_entry(entry: PluginEntry) -> PluginEntry:
    if not entry.name or not entry.is_usable:
        return entry
    try:
        load_class(entry.kind, entry.name, entry.target, entry.provider)
    except PluginError as error:
        return replace(entry, status=BROKEN, reason=str(error))
    return entry


def _print_table(entries: list[PluginEntry]) -> None:
    rows = []
    for entry in entries:
        status = f"{entry.status}: {entry.reason}" if entry.reason else entry.status
        cells = (entry.kind, entry.name, entry.distribution, entry.version)
        rows.append((*cells, Text(status, _STYLES.get(entry.status, "yellow"))))
    headings = ("kind", "name", "distribution", "version", "status")
    make_console().print(rows_table(headings, rows))
