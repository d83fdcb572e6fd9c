"""The ``streamplug-datasets`` command: one subcommand for each data set."""

from __future__ import annotations

from importlib import import_module

import click

from streamplug.cli import CommandGroup

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


class _DatasetCommands(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def load_command(self, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(
            f"streamplug_datasets.convert.{COMMANDS[name]}"
        ).command
        return command


@click.group(cls=_DatasetCommands)
def main() -> None:
    """Convert well-known data sets from their original files."""
