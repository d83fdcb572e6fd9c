"""The ``streamplug`` command."""

from streamplug.cli.app import main
from streamplug.cli.command_group import CommandGroup, examples

__all__ = ["CommandGroup", "examples", "main"]
