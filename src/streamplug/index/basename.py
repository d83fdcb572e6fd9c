"""Validation of file names in an index."""

from __future__ import annotations

import re

from streamplug.errors import InvalidIndexError

_SHARD_NAME = re.compile(r"shard\.[0-9]{5,}\..+")
_DRIVE = re.compile(r"[A-Za-z]:")
# Control characters, lone surrogates, backslashes and wildcards.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\?*]")

PLAIN_BASENAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*"
"""Pattern of common names, all of which `validate_basename` accepts."""

NAME_RULES = (
    "names cannot contain \\, ?, *, :// or control characters, begin with ~, .streamplug or a drive such as "
    "C:, begin or end with a blank, or be other than UTF-8"
)
"""Rules of `validate_basename`, for error messages."""


def is_shard_name(name: str) -> bool:
    """Return whether a file name, without directories, is one that writers give the files of shards."""
    return _SHARD_NAME.fullmatch(name) is not None


def normalize_basename(name: object) -> object:
    """Return a path without ``./`` and repeated slashes inside, as mosaicml-streaming reads them."""
    if not isinstance(name, str) or "/" not in name or "://" in name:
        return name
    first, *inner, last = name.split("/")
    head = [] if first == "." else [first]
    return "/".join([*head, *(part for part in inner if part not in ("", ".")), last])


def validate_basename(name: object, what: str) -> str:
    """Return a file name if it is a relative path inside the data set, or raise InvalidIndexError."""
    label = f"{what}.basename {name!r:.80}"
    if not isinstance(name, str):
        raise InvalidIndexError(f"{label} is no path of a file")
    parts = name.split("/")
    leaves = (
        name.startswith(("/", "~", ".streamplug"))
        or "://" in name
        or ".." in name.replace("\\", "/").split("/")
        or bool(_DRIVE.match(name))
    )
    if leaves:
        raise InvalidIndexError(
            f"{label} is not a relative path inside the data set; do not use this index unless you know "
            "where it comes from"
        )
    if any(part in ("", ".") or part != part.strip() for part in parts) or _FORBIDDEN.search(name):
        raise InvalidIndexError(
            f"{label} cannot be the path of a file: {NAME_RULES}; rename it, and write the index again"
        )
    return name
