"""The ``streamplug`` command."""

from streamplug.cli.app import main
from streamplug.cli.command_help import examples

__all__ = ["examples", "main"]
