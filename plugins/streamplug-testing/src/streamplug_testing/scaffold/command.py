"""The command ``streamplug new-plugin``."""

from __future__ import annotations

from pathlib import Path

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug_testing.scaffold import EXAMPLES
from streamplug_testing.scaffold import new_plugin as make


@click.command(
    epilog=examples(
        "streamplug new-plugin mycodec --kind compression",
        "streamplug new-plugin mystore --kind storage --out plugins",
    )
)
@click.argument("name")
@click.option("--kind", type=click.Choice(list(EXAMPLES)), required=True, help="Kind of plugin.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to create the directory of the plugin.  [default: working directory]",
)
def new_plugin(name: str, kind: str, out: Path) -> None:
    """Create the files of a plugin, with an example that passes its tests.

    The distribution is streamplug-NAME; NAME may include the prefix streamplug-.
    """
    say(str(make(name, kind, out)))
