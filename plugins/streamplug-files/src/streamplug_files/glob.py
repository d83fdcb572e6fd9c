"""Globs and brace expansion in file locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os.path import commonprefix, lexists
from urllib.parse import unquote

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url
from streamplug.plugin import is_http, is_url, local_path, split_query

_NUMBER_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_WILDCARD = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]/]+\]")
_ESCAPED = re.compile(r"\[([^]/])\]")  # a character that stands for itself
_SPECIAL_OR_ESCAPED = re.compile(rf"{_ESCAPED.pattern}|[*\[{{]")
_TO_ESCAPE = re.compile(r"[*?\[{}]")
_BRACKETS = re.compile(r"[\[{}]")
_BRACE_TOKEN = re.compile(r"\[[{},]\]|.", re.DOTALL)
_PERCENT = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)
_IPV6_HOST = re.compile(
    r"[a-z][a-z0-9+.:-]*://(?:[^/]*@)?\[[0-9a-f.]*:[0-9a-f.:]*\]", re.IGNORECASE
)
MAX_RANGE_NUMBERS = 10_000_000


@dataclass(frozen=True)
class FileSet:
    """Names, globs and directories (with a trailing slash) below a root, in order; ``''`` is all of it.

    In a name, ``*``, ``?``, ``[``, ``{`` and ``}`` are in brackets, as `unescape` expects. The root of HTTP
    URLs has their query if they have the same one; else `queries` has that of each file. `locations` has for
    each part the number of the location that was expanded to it; empty if each is one. `names` has the keys
    of objects that locations, by number, may also name, whose characters stand for themselves then; `errors`
    tells what is wrong with a location if there is no such object.
    """

    root: str
    parts: tuple[str, ...]
    locations: tuple[int, ...] = field(default=(), compare=False)
    queries: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict, compare=False)
    errors: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def whole(self) -> bool:
        """Whether it is the whole root directory."""
        return self.parts == ("",)

    def find_empty(self, counts: Sequence[int]) -> str | None:
        """Return a part of a location without any file; None if all have some.

        Some choices of a pattern, such as ``*.{jpg,png}``, may have none.

        Args:
            counts: Number of files of each part.
        """
        locations = self.locations or range(len(self.parts))
        found = {location for location, count in zip(locations, counts) if count}
        empty = (p for p, location in zip(self.parts, locations) if location not in found)
        return next(empty, None)


def parse_locations(locations: str | Sequence[str], is_file: Callable[[str], bool]) -> FileSet:
    """Parse URLs or paths of files and directories into a file set.

    ``*``, ``**``, ``[…]`` and ``{…}`` are expanded after the last plain directory, but not in the query of
    an HTTP URL, nor in names that exist on this machine, nor of one character in brackets, as in ``[{]``. Of
    other URLs, the file set has the names that they may be. `is_file` tells names of files from those of
    directories.

    Raises:
        ConfigError: If a location is invalid, or they have no common directory, or are not all files but
            have several queries, or one path has two queries.
    """
    names = [locations] if isinstance(locations, str) else list(locations)
    if not names:
        raise ConfigError("remote=[] names no files")
    if not all(names):  # it would be the root of the file system
        raise ConfigError(
            "remote=: one of the locations is empty; leave it out, or pass '.' for the working directory"
        )
    paths, queries = zip(*map(split_query, names))
    expanded, errors = _expand(paths, is_file)
    split = [pair for pairs in expanded for pair in pairs]
    numbers = tuple(number for number, pairs in enumerate(expanded) for _ in pairs)
    firsts = {folder.partition("/")[0] for folder, _ in split}
    if len(firsts) > 1 and all(_is_below(folder) for folder, _ in split):
        split = [(f if f.partition("/")[0] == "." else f"./{f}", rest) for f, rest in split]
    root = _common_root([folder for folder, _ in split])
    parts = []
    for folder, rest in split:
        inner = folder[len(root) :].strip("/")
        inner = _decode(escape(inner), root) if is_http(root) else escape(inner)
        parts.append(f"{inner}/{rest}" if inner else rest)
    if len(set(queries)) == 1:
        keys = _names(paths, root, is_file)
        return FileSet(root + queries[0], tuple(parts), numbers, names=keys, errors=errors)
    if not all(map(is_name, parts)):
        raise ConfigError(
            f"{public_url(names[0])!r} and others differ in the query of their URLs, such as a signature, "
            "and not all are files: name the files, or give each location its own stream in streams="
        )
    by_name: dict[str, str] = {}
    for part, number in zip(parts, numbers):
        if by_name.setdefault(unescape(part), queries[number]) != queries[number]:
            raise ConfigError(
                f"{public_url(names[number])!r} is named twice, with two queries, and the path of a file is "
                "its name: give each its own stream in streams="
            )
    return FileSet(root, tuple(parts), numbers, by_name)


def _expand(
    paths: Sequence[str], is_file: Callable[[str], bool]
) -> tuple[list[list[tuple[str, str]]], dict[int, str]]:
    """Return the (directory, rest) pairs of each path, and errors of those that can be names only."""
    expanded, errors = [], {}
    for number, path in enumerate(paths):
        try:
            pairs = list(_split(path, is_file))
        except ConfigError as error:
            if not _may_be_name(path, is_file):
                raise
            folder, _, name = path.rpartition("/")
            errors[number], pairs = str(error), [(folder, escape(name))]
        expanded.append(pairs)
    return expanded, errors


def _names(paths: Sequence[str], root: str, is_file: Callable[[str], bool]) -> dict[int, str]:
    """Return the keys of the objects that paths may be the names of, by their numbers."""
    start = f"{root}/"
    return {
        number: path.removeprefix(start)
        for number, path in enumerate(paths)
        if path.startswith(start) and _may_be_name(path, is_file)
    }


def _split(location: str, is_file: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the (directory, rest) pairs of a location after brace expansion."""
    start = _literal_length(location)
    found = _SPECIAL_OR_ESCAPED.finditer(location, start)
    special = next((match.start() for match in found if match[1] is None), None)
    plain = location[:start] + unescape(location[start:])
    if special is None and not is_file(plain):
        yield plain.rstrip("/") or "/", ""
        return
    at = location.rfind("/", 0, special)
    folder, rest = ".", escape(location[at + 1 : start]) + location[max(at + 1, start) :]
    if at >= 0:
        folder = location[: min(start, at)] + unescape(location[start:at]) or "/"
    if folder.endswith(":/"):
        raise ConfigError(f"{public_url(location)!r}: the part after :// must be plain")
    if is_http(location):
        rest = _decode(rest, location)
    for name in expand_braces(rest, public_url(location)):
        yield folder, name


def _may_be_name(location: str, is_file: Callable[[str], bool]) -> bool:
    """Return whether a location may be a pattern as well as the name of an object of a storage.

    HTTP URLs may be percent-encoded instead, and of this machine it is known what exists. No file of a data
    set has ``*`` or ``?`` in its name.
    """
    if not is_url(location) or is_http(location) or local_path(location) is not None:
        return False
    _, _, path = location.partition("://")[2].partition("/")
    return _BRACKETS.search(path) is not None and not set("*?") & set(path) and is_file(location)


def _literal_length(location: str) -> int:
    """Return the length of the start of a location in which no character is special.

    It is the host of a URL, or the directories of this machine, and the file, that exist.
    """
    if (host := _IPV6_HOST.match(location)) is not None:
        return host.end()
    if _SPECIAL_OR_ESCAPED.search(location) is not None and local_path(location) is not None:
        for name in reversed([*re.finditer(r"(?<=[^/])(?:/+|\Z)", location)]):
            path = local_path(location[: name.start()])
            if path is not None and lexists(path):
                return name.end()
    return 0


def _decode(part: str, url: str) -> str:
    """Return a part without percent-encoding, which makes characters stand for themselves.

    Raises:
        ConfigError: If it is the encoding of a slash, or not of UTF-8; errors show the `url`.
    """

    def decode(match: re.Match[str]) -> str:
        try:
            plain = unquote(match[0], errors="strict")
        except UnicodeDecodeError:
            plain = ""
        if not plain or "/" in plain:
            raise ConfigError(
                f"{public_url(url)!r}: {match[0]} is no part of the name of a file; serve it under another "
                "name"
            )
        return escape(plain)

    return _PERCENT.sub(decode, part)


def _is_below(folder: str) -> bool:
    """Return whether a directory is below the current one."""
    return not (folder.startswith("/") or is_url(folder) or ".." in folder.split("/"))


def expand_braces(text: str, label: str | None = None) -> Iterator[str]:
    """Yield the expansions of ``{a,b}`` and ``{00..12}`` in a text, which errors show as `label`.

    Of names in the result, a brace is in brackets, as in ``[{]``.

    >>> list(expand_braces("{a,b}-{08..10}"))
    ['a-08', 'a-09', 'a-10', 'b-08', 'b-09', 'b-10']

    Raises:
        ConfigError: If braces are unbalanced, or a range is invalid or too long.
    """
    if "{" not in text and "}" not in text:
        yield text
        return
    label, tokens = public_url(text) if label is None else label, _BRACE_TOKEN.findall(text)
    if "{" not in tokens:
        if "}" in tokens:
            raise _unbalanced(label)
        yield text
        return
    start = tokens.index("{")
    choices, stop = _parse_braces(tokens, start, label)
    before, after = "".join(tokens[:start]), "".join(tokens[stop:])
    for choice in choices:
        for inner in expand_braces(choice, label):
            for rest in expand_braces(after, label):
                yield before + inner + rest


def _unbalanced(label: str) -> ConfigError:
    return ConfigError(f"{label!r}: unbalanced brace; write one of a name in brackets: [{{]")


def _parse_braces(tokens: Sequence[str], start: int, label: str) -> tuple[Iterable[str], int]:
    """Return the choices in the braces that open at `start`, and the position after them."""
    depth, choices = 0, [""]
    stop = start
    for character in tokens[start:]:
        stop += 1
        depth += (character == "{") - (character == "}")
        if depth == 0:
            break
        if depth == 1 and character == ",":
            choices.append("")
        else:
            choices[-1] += character
    else:
        raise _unbalanced(label)
    choices[0] = choices[0][1:]  # without the opening brace
    if len(choices) > 1:
        return choices, stop
    numbers = _NUMBER_RANGE.fullmatch(choices[0])
    if numbers is None:
        raise ConfigError(
            f"{label!r}: {{{choices[0]}}} is neither a choice nor a count; write the braces "
            "of a name in brackets: [{]"
        )
    first, last, width = int(numbers[1]), int(numbers[2]), len(numbers[1])
    if not first <= last < first + MAX_RANGE_NUMBERS:
        raise ConfigError(f"{label!r}: {{{choices[0]}}} does not count up, or too far")
    return (f"{number:0{width}d}" for number in range(first, last + 1)), stop


def is_glob(part: str) -> bool:
    """Return whether a part of a `FileSet` is a glob."""
    plain = _ESCAPED.sub("", part)
    return "*" in plain or "[" in plain


def is_name(part: str) -> bool:
    """Return whether a part of a `FileSet` is the name of a file, which `unescape` returns."""
    return part != "" and not part.endswith("/") and not is_glob(part)


def escape(name: str) -> str:
    """Return a name as a part of a `FileSet`."""
    return _TO_ESCAPE.sub(r"[\g<0>]", name)


def unescape(part: str) -> str:
    """Return the name that a part of a `FileSet` stands for if it is not a glob.

    >>> unescape("a[[]1].tar"), unescape(escape("{b}"))
    ('a[1].tar', '{b}')
    """
    return _ESCAPED.sub(r"\1", part)


def glob_may_contain(glob: str, folder: str, hidden: str = "") -> bool:
    """Return whether a glob may match files below a directory; `hidden` is that of `compile_glob`.

    >>> glob_may_contain("a*/*.tar", "ab"), glob_may_contain("a*/*.tar", "b")
    (True, False)
    """
    parts = [compile_glob(f"{part}/", hidden) for part in glob.split("/")]
    names = [f"{name}/" for name in folder.split("/")]
    for number, name in enumerate(names):
        if number < len(parts) and "**" in glob.split("/")[number]:
            rest = parts[number:]  # which may name a hidden directory
            return all(any(part.fullmatch(name) for part in rest) for name in names[number:])
        if number >= len(parts) - 1 or not parts[number].fullmatch(name):
            return False
    return True


@lru_cache(256)
def compile_glob(glob: str, hidden: str = "") -> re.Pattern[str]:
    """Compile a glob to a regular expression; ``**`` matches any number of directories.

    Args:
        glob: The glob.
        hidden: Regular expression of the start of hidden names, those of directories with a slash. As in a
            shell, a wildcard at the start of a name does not match them.
    """
    pattern, end = "", 0
    for match in _WILDCARD.finditer(glob):
        begins_name = match.start() == 0 or glob[match.start() - 1] == "/"
        pattern += re.escape(glob[end : match.start()])
        pattern += _translate_wildcard(match[0], hidden, begins_name=begins_name)
        end = match.end()
    try:
        return re.compile(pattern + re.escape(glob[end:]), re.DOTALL)
    except re.error as error:  # a range such as [z-a]
        raise ConfigError(f"{glob!r}: {error.msg}") from None


def _translate_wildcard(wildcard: str, hidden: str, *, begins_name: bool) -> str:
    start = not_hidden(hidden) if begins_name else ""
    if wildcard.startswith("["):
        if len(wildcard) == 3:
            return start + re.escape(wildcard[1])
        inside = wildcard[1:-1].replace("\\", r"\\").replace("[", r"\[")
        negated = inside.startswith(("!", "^"))
        # No range, such as [+-9], has a slash in it, and none begins with one.
        return f"{start}(?!/)" + (f"[^{inside[1:]}]" if negated else f"[{inside}]")
    below = f"[^/]*(?:/{not_hidden(hidden)}[^/]*)*"
    return {
        "**/": f"(?:{start}{below}/)?",
        "**": start + below,
        "*": f"{start}[^/]*",
        "?": f"{start}[^/]",
    }[wildcard]


def not_hidden(hidden: str) -> str:
    """Return a regular expression of the place before a name that is not hidden; see `compile_glob`."""
    return f"(?!{hidden})" if hidden else ""


def glob_prefix(glob: str) -> str:
    """Return the literal prefix of a glob."""
    found = re.finditer(rf"{_ESCAPED.pattern}|[*?\[]", glob)
    end = next((match.start() for match in found if match[1] is None), len(glob))
    return unescape(glob[:end])


def _common_root(folders: Sequence[str]) -> str:
    names = [folder.split("/") for folder in folders]
    shared = commonprefix(names)  # noqa: RUF071 - of names, not of characters
    root = "/".join(shared) or ("/" if folders[0].startswith("/") else "")
    if not root or root.endswith(("//", ":/", ":")) or (is_url(folders[0]) and len(shared) < 3):
        raise ConfigError(
            f"{public_url(folders[0])!r} and others have no directory in common; "
            "give each its own stream in streams="
        )
    return root
