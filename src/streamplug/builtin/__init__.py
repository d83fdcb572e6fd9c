"""Plugins that are part of the core, reached by name; listed are those that others extend."""

from streamplug.builtin.encodings.plain import Bytes, Str

__all__ = ["Bytes", "Str"]
