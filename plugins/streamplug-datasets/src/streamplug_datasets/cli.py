"""The ``streamplug-datasets`` command: one subcommand for each data set."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from streamplug.display.terminal import say
from streamplug.errors import OutputExistsError, StreamplugError

COMMANDS = {
    "ade20k": "ade20k",
    "c4": "c4",
    "cifar10": "cifar10",
    "coco": "coco",
    "enwiki": "enwiki",
    "enwiki-text": "enwiki_text",
    "imagenet": "imagenet",
    "laion400m": "laion400m",
    "laion400m-crawl": "laion400m_crawl",
    "pile": "pile",
    "webvid": "webvid",
    "webvid-extract": "webvid_extract",
}
"""The module of each data set; it is imported when its command runs, or when help is asked for."""


class _DatasetGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"streamplug_datasets.convert.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StreamplugError as error:
            say(f"error: {error}", err=True)
            if isinstance(error, OutputExistsError):
                say("here, that is --replace", err=True)
            ctx.exit(1)


@click.group(cls=_DatasetGroup)
def main() -> None:
    """Convert well-known data sets from their original files."""
