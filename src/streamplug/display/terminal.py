"""Text for terminals, in which names and values of a data set cannot give orders to the terminal."""

from __future__ import annotations

import re

import click

# C0 and C1 controls but tabs and line ends, the characters that reverse what follows them, and lone
# surrogates, which cannot be printed.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return a text with control characters and lone surrogates as escapes, such as ``\x1b``."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def visible_json(text: str) -> str:
    r"""Return a JSON text of the same value with control characters as escapes, such as ``\u009b``."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON has no other controls within strings; this is much faster than a search
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line to standard output, or to standard error, with control characters as escapes."""
    click.echo(visible(text), err=err)
