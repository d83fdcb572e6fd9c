"""``streamplug plugins``: what is built in, what is installed, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import click
from rich.text import Text

import streamplug
from streamplug.display.tables import make_console, rows_table
from streamplug.errors import PluginError
from streamplug.plugin.discovery import BROKEN, OK, Found, inventory
from streamplug.plugin.kinds import KINDS
from streamplug.plugin.registry import load

INSTALLED = "installed"
"""Status of what nobody has tried to import."""
_STYLES = {OK: "green", "disabled": "dim", BROKEN: "red"}


@click.command()
@click.option("--kind", type=click.Choice(list(KINDS)), help="List plugins of one kind only.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option(
    "--check", is_flag=True, help="Import every class; exit with 1 if anything is broken."
)
@click.pass_context
def plugins(context: click.Context, kind: str | None, *, as_json: bool, check: bool) -> None:
    """List what is built in and what installed plugins provide.

    Without --check no class is imported, only each plugin's list of names: what is there is "installed".
    With it, what could be imported is "ok".
    """
    found = sorted((*_built_in(), *inventory().found), key=_order)
    # A plugin that is broken as a whole may have had names of this kind.
    found = [f for f in found if kind is None or f.kind in (kind, "")]
    found = [_checked(f) if check else _unchecked(f) for f in found]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in found], indent=2))
    else:
        _show(found)
    if check and any(f.status == BROKEN for f in found):
        context.exit(1)


def _built_in() -> Iterator[Found]:
    for kind in KINDS.values():
        for name, target in kind.builtin.items():
            yield Found(kind.name, name, "streamplug", streamplug.__version__, target)


def _order(found: Found) -> tuple[int, str, str]:
    kinds = [*KINDS, ""]
    return (kinds.index(found.kind), found.name, found.distribution)


def _unchecked(found: Found) -> Found:
    return replace(found, status=INSTALLED) if found.status == OK else found


def _checked(found: Found) -> Found:
    if not found.name or found.status not in (OK, "ambiguous"):
        return found
    try:
        load(found.kind, found.name, found.target, found.provider)
    except PluginError as error:
        return replace(found, status=BROKEN, reason=str(error))
    return found


def _show(found: list[Found]) -> None:
    rows = []
    for f in found:
        status = f"{f.status}: {f.reason}" if f.reason else f.status
        cells = (f.kind, f.name, f.distribution, f.version)
        rows.append((*cells, Text(status, _STYLES.get(f.status, "yellow"))))
    headings = ("kind", "name", "distribution", "version", "status")
    make_console().print(rows_table(headings, rows))
