"""Names of options in errors, in place of those of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click


def use_option_names(text: str, command: click.Command | None) -> str:
    """Replace ``name=`` in an error by the option of a command, or its argument, of that name."""
    names = dict(_names(command))
    if not names:
        return text
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    # Without a value, as in "pass split=, or …", the mark goes as well.
    pattern = rf"(?<![\w'\"`.=-])({alternatives})=([\w'\"\[({{.-]|)"
    return re.sub(pattern, lambda m: names[m[1]] + (f"={m[2]}" if m[2] else ""), text)


def _names(command: click.Command | None) -> Iterator[tuple[str, str]]:
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _names(part)
    elif command is not None:
        for parameter in command.params:
            names = [name for name in parameter.opts if name.startswith("--")]
            yield str(parameter.name).strip("_"), (names or [parameter.human_readable_name])[0]
