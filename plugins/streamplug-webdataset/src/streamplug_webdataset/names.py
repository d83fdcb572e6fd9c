"""What the name of a member of an archive says: which sample it belongs to, and as what."""

from __future__ import annotations

import re

KEY = "__key__"
"""The column of the samples' keys."""

URL = "__url__"
"""The URL of the archive that a sample is in, which pipelines have."""

FILE = "file"
"""The column of the files' bytes where each file is a sample."""

_METADATA = re.compile(r"__[^/]*__(/|\Z)")
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def split_name(name: str, *, lower: bool = True, last_dot: bool = False) -> tuple[str, str] | None:
    """Return the key and the extension that a name has, or None if it has none.

    The extension begins after the first dot of the last part of the path, with `last_dot` after the last one,
    and is in lower case if `lower`. Files of attributes that macOS adds, such as ``._0001.jpg``, have none.

    >>> split_name("a.b/0001.Seg.png")
    ('a.b/0001', 'seg.png')
    >>> split_name("Mr. A.jpg", last_dot=True)
    ('Mr. A', 'jpg')
    """
    folder, slash, last = name.rpartition("/")
    stem, dot, extension = last.rpartition(".") if last_dot else last.partition(".")
    if not dot or last.startswith("._"):
        return None
    if not stem and (not slash or "." in folder.rpartition("/")[2]):
        return None
    return name[: len(name) - len(extension) - 1], extension.lower() if lower else extension


def is_metadata(name: str) -> bool:
    """Say whether a member is about the archive rather than of a sample: ``__meta__/…``."""
    return name.startswith("__") and _METADATA.match(name) is not None


def key_problem(key: str) -> str | None:
    """Return why a key cannot be written, so that every reader finds it again; None if it can."""
    if not key or key.startswith("/") or key.endswith("/"):
        return "must end with a name, and not begin with a slash"
    if "." in key.rpartition("/")[2]:
        return "must not have a dot in its last part, where the extension begins"
    if is_metadata(key):
        return "must not begin with a part such as __meta__, which readers skip"
    if _UNWRITABLE.search(key):
        return "must be text without control characters"
    return None


def extension_problem(extension: str) -> str | None:
    """Return why a column's name cannot be an extension; None if it can."""
    if not extension or "/" in extension or _UNWRITABLE.search(extension):
        return "must be the ending of a file name"
    if extension != extension.lower():
        return "must be in lower case, as readers make it"
    if extension.startswith("__") or extension.endswith("__"):
        return "must not begin or end with two underscores, as names of metadata do"
    return None
