"""The ``streamplug`` command."""

from streamplug.cli.app import main
from streamplug.cli.command_group import CommandGroup
from streamplug.cli.command_help import examples

__all__ = ["CommandGroup", "examples", "main"]
