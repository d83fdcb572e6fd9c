"""Globs and brace expansion in file locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from streamplug.errors import ConfigError
from streamplug.interfaces.storage import public_url
from streamplug.plugin.location import is_url, join

_COUNT = re.compile(r"([0-9]+)\.\.([0-9]+)")
_GLOB = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]/]+\]")
_SPECIAL = re.compile(r"[*\[{]")
_MOST = 10_000_000


@dataclass(frozen=True)
class FileSet:
    """Names, globs and directories (with a trailing slash) below a root, in order; ``''`` is all of it."""

    root: str
    parts: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether it is the whole root directory."""
        return self.parts == ("",)


def parse_locations(locations: str | Sequence[str], is_file: Callable[[str], bool]) -> FileSet:
    """Parse URLs or paths of files and directories into a file set.

    ``*``, ``**``, ``[…]`` and ``{…}`` are expanded after the last plain directory; `is_file` tells names of
    files from those of directories.

    Raises:
        ConfigError: If a location is invalid, or they have no common directory.
    """
    given = [locations] if isinstance(locations, str) else list(locations)
    if not given:
        raise ConfigError("remote=[] names no files")
    split = [pair for location in given for pair in _split(location, is_file)]
    root = _common([folder for folder, _ in split])
    return FileSet(root, tuple(_below(root, folder, rest) for folder, rest in split))


def _split(location: str, is_file: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the (directory, rest) pairs of a location after brace expansion."""
    special = _SPECIAL.search(location)
    if special is None and not is_file(location):
        yield location.rstrip("/") or "/", ""
        return
    at = location.rfind("/", 0, special.start() if special else None)
    folder, rest = (location[: max(at, 1)], location[at + 1 :]) if at >= 0 else (".", location)
    if folder.endswith(":/"):
        raise ConfigError(f"{public_url(location)!r}: the part after :// must be plain")
    for name in expand_braces(rest):
        yield folder, name


def expand_braces(text: str) -> Iterator[str]:
    """Yield the expansions of ``{a,b}`` and ``{00..12}`` in a text.

    >>> list(expand_braces("{a,b}-{08..10}"))
    ['a-08', 'a-09', 'a-10', 'b-08', 'b-09', 'b-10']

    Raises:
        ConfigError: If braces are unbalanced, or a range is invalid or too long.
    """
    start = text.find("{")
    if start < 0:
        if "}" in text:
            raise ConfigError(f"{text!r}: unbalanced brace")
        yield text
        return
    choices, stop = _choices(text, start)
    for choice in choices:
        for inner in expand_braces(choice):
            for rest in expand_braces(text[stop:]):
                yield text[:start] + inner + rest


def _choices(text: str, start: int) -> tuple[Iterable[str], int]:
    """Return the choices in the braces that open at `start`, and the position after them."""
    depth, begin, found = 0, start + 1, []
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0 or (depth == 1 and text[at] == ","):
            found.append(text[begin:at])
            begin = at + 1
        if depth == 0:
            break
    else:
        raise ConfigError(f"{text!r}: unbalanced brace")
    count = _COUNT.fullmatch(found[0])
    if len(found) > 1:
        return found, begin
    if count is None:
        raise ConfigError(f"{text!r}: {{{found[0]}}} is neither a choice nor a count")
    first, last, width = int(count[1]), int(count[2]), len(count[1])
    if not first <= last < first + _MOST:
        raise ConfigError(f"{text!r}: {{{found[0]}}} does not count up, or too far")
    return (f"{number:0{width}d}" for number in range(first, last + 1)), begin


def is_glob(part: str) -> bool:
    """Return whether a part of a `FileSet` is a glob."""
    return "*" in part or "[" in part


def glob_may_contain(glob: str, folder: str) -> bool:
    """Return whether a glob may match files below a directory.

    >>> glob_may_contain("a*/*.tar", "ab"), glob_may_contain("a*/*.tar", "b")
    (True, False)
    """
    parts = glob.split("/")
    for number, name in enumerate(folder.split("/")):
        if number < len(parts) and "**" in parts[number]:
            return True
        if number >= len(parts) - 1 or not compile_glob(parts[number]).fullmatch(name):
            return False
    return True


def compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression; ``**`` matches any number of directories."""
    pieces, end = [], 0
    for found in _GLOB.finditer(glob):
        pieces += [re.escape(glob[end : found.start()]), _translated(found[0])]
        end = found.end()
    return re.compile("".join([*pieces, re.escape(glob[end:])]), re.DOTALL)


def _translated(wildcard: str) -> str:
    if wildcard.startswith("["):
        inside = wildcard[1:-1].replace("\\", r"\\")
        return f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[wildcard]


def glob_prefix(glob: str) -> str:
    """Return the literal prefix of a glob."""
    found = re.search(r"[*?\[]", glob)
    return glob[: found.start()] if found else glob


def _common(folders: Sequence[str]) -> str:
    split = [folder.split("/") for folder in folders]
    shared = []
    for parts in zip(*split):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    root = "/".join(shared) or ("/" if folders[0].startswith("/") else "")
    if not root or root.endswith(("//", ":/", ":")) or (is_url(folders[0]) and len(shared) < 3):
        raise ConfigError(
            f"{public_url(folders[0])!r} and others have no directory in common; "
            "give each its own stream in streams="
        )
    return root


def _below(root: str, folder: str, rest: str) -> str:
    inner = folder[len(root) :].strip("/")
    return join(inner, rest) if inner and rest else f"{inner}/" if inner else rest
