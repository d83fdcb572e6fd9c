"""The command ``streamplug config``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from streamplug.cli import examples
from streamplug.config import SECTIONS, Mistakes, configured_class, load
from streamplug.display import say
from streamplug.errors import ConfigError, prefix_errors
from streamplug_tools.config_names import check_dataset, check_writer
from streamplug_tools.config_schema import json_schema
from streamplug_tools.config_sections import section_classes, subclasses


@click.command(
    epilog=examples(
        "streamplug config check run.toml --open",
        "streamplug config schema",
    )
)
@click.argument("action", type=click.Choice(["schema", "check"]))
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--open",
    "opens",
    is_flag=True,
    help="With check: also open the data set, which reads its index.",
)
def config(action: str, file: str | None, *, opens: bool) -> None:
    """Check a config file, or print the JSON schema of config files.

    check validates the keys and types in FILE, the values of data sets and writers, and that the shuffles,
    compressions, storages and other plugins that FILE names are installed. Only a loader itself validates
    its values. check does not read the data set unless you pass --open.

    schema prints the JSON schema. It includes the section loader if torch is installed, and the keys of
    rows of tokens and of packs if their distributions are installed.
    """
    if (action == "check") != (file is not None) or (opens and file is None):
        raise click.UsageError("check takes a FILE, schema takes none, and only check --open")
    if file is None:
        click.echo(json.dumps(json_schema(section_classes(), subclasses()), indent=2))
        return
    settings = load(file)
    named = [name for name in SECTIONS if name in settings]
    with prefix_errors(f"config {file}", ConfigError):
        _check(settings, named)
        if opens:
            if named and "dataset" not in named:
                raise ConfigError("dataset: no such section, which --open opens")
            section_classes()["dataset"].from_config(settings)
    say(f"{file}: {', '.join(named or ['dataset'])}: OK")


def _check(settings: dict[str, Any], named: Sequence[str]) -> None:
    """Check the named sections of a configuration; without any, the whole is one of a data set.

    Raises:
        ConfigError: With all that is wrong.
    """
    classes: dict[str, Any] = section_classes()
    mistakes = Mistakes()
    for name in named or ["dataset"]:
        with mistakes.collected():
            if name not in classes:
                raise ConfigError(f"{name}: needs torch, which is not installed: pip install torch")
            cls = configured_class(classes[name], settings)
            cls.check_config(settings)
            if name == "dataset":
                check_dataset(settings, cls, "dataset" if named else "")
            elif name == "writer":
                check_writer(settings["writer"], "writer")
    mistakes.raise_all()
