"""The ``streamplug`` command."""

from streamplug.cli.app import main

__all__ = ["main"]
