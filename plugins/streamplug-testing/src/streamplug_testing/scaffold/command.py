"""The command ``streamplug new-plugin``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from streamplug.cli import examples
from streamplug.display import say
from streamplug.plugin import load_catalog
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
    folder = make(name, kind, out)
    plugin = folder.name.removeprefix("streamplug-")
    say(f"{folder}: created; next:")
    say(f"  cd {shlex.quote(str(folder))}")
    say("  pip install -e . streamplug-testing pytest")
    say("  pytest")
    say(f"  streamplug plugins --kind {kind} --check")
    if owner := load_catalog().get(kind, {}).get(plugin):
        say(
            f"warning: {plugin!r} is also a {kind} of {owner}: where both are installed, the name is "
            "ambiguous; choose another one if the plugin is for others, too",
            err=True,
        )
