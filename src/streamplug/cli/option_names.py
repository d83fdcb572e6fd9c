"""Names of options in errors, in place of those of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click


def use_option_names(text: str, command: click.Command | None) -> str:
    """Replace ``name=`` in an error by the option of a command, or its argument, of that name."""
    parameters = {str(parameter.name).strip("_"): parameter for parameter in _parameters(command)}
    if not parameters:
        return text
    names = {name: _shown_name(parameter) for name, parameter in parameters.items()}
    if names.get("select") == "--select":  # there, --columns has encodings, not the columns to read
        text = text.replace(
            "leave the column out with columns=", "leave the column out with --drop"
        )
        text = text.replace("with columns=", "with --select")
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    # Without a value, as in "pass split=, or …", the mark goes as well.
    pattern = rf"(?<![\w'\"`.=-])({alternatives})=(True\b|[\w'\"\[({{.-]|)"

    def replace(match: re.Match[str]) -> str:
        name, value = match.groups()
        is_set = value == "True" and getattr(parameters[name], "is_flag", False)
        return names[name] if is_set or not value else f"{names[name]}={value}"

    # Some errors name both, as in "exist_ok=True (--exist-ok)".
    return re.sub(r"(--[\w-]+) \(\1\)", r"\1", re.sub(pattern, replace, text))


def _shown_name(parameter: click.Parameter) -> str:
    options = [name for name in parameter.opts if name.startswith("--")]
    return options[0] if options else parameter.human_readable_name


def _parameters(command: click.Command | None) -> Iterator[click.Parameter]:
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _parameters(part)
    elif command is not None:
        yield from command.params
