"""``streamplug new-plugin``: a distribution of a plugin to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from streamplug.cli.scaffold import EXAMPLES
from streamplug.cli.scaffold import new_plugin as make


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(list(EXAMPLES)), required=True, help="What it is.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to make its folder.  [default: here]",
)
def new_plugin(name: str, kind: str, out: Path) -> None:
    """Make a distribution that provides the plugin NAME, with an example that passes its tests.

    It is called streamplug-NAME; NAME may be given with or without streamplug- before it.
    """
    click.echo(make(name, kind, out))
