"""Names of options in errors, in place of those of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

_ADVICE = (
    ("remote", "check remote=, local= and split=", "check the location"),
    ("remote", "check remote= and split=", "check the location"),
    ("remote", "pass remote= if the set lies elsewhere", "check the location"),
    ("exist_ok", ", or pass exist_ok=True (--exist-ok) to replace it", ""),
    ("columns", ", or leave the column out with columns=", ""),
    ("columns", "read fewer columns with columns=, or ", ""),
    ("columns", "read only others, with columns=, or ", ""),
    ("columns", "choose others with columns=, or ", ""),
    (
        "rebase",
        "call rebase() to apply the changes to the latest version, and commit again",
        "run the command again, or if you read an older version, write to another location",
    ),
    (
        "src_format",
        "; files that need no index, such as Parquet, are read with their format= (--src-format)",
        "",
    ),
    ("download_timeout", ", or raise download_timeout=", ""),
)
"""Arguments, advice that names them, and what commands say that have no such option."""

_MORE_RETRIES = re.compile(r"; raise (?:download_)?retry= for more")


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
    for name, advice, replacement in _ADVICE:
        if name not in names:
            text = text.replace(advice, replacement)
    text = _MORE_RETRIES.sub("; raise retries= for more" if "retries" in names else "", text)
    # Not --format, which in most commands is that of the new data set.
    text = text.replace("with their format= (--src-format)", "with --src-format")
    # Without a value, as in "pass split=, or …", the mark goes as well.
    pattern = rf"(?<![\w'\"`./=-])({alternatives})=(True\b|[\w'\"\[({{.-]|)"

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
