"""Examples at the end of the help of a command."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return command lines as the `epilog` of a click command, which prints them as they are."""
    return "\n  ".join(("\b\nExamples:", *lines))
