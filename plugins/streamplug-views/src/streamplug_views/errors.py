"""Errors of views."""

from __future__ import annotations

from streamplug.errors import StreamplugError


class ConflictError(StreamplugError, ValueError):
    """Another commit wrote the version that this one was to write."""
