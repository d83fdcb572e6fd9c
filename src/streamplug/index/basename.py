"""Validation of file names in an index: relative paths that stay inside the data set."""

from __future__ import annotations

import re

from streamplug.errors import InvalidIndexError

_DRIVE = re.compile(r"[A-Za-z]:")
# What no file name of a data set has: control characters, halves of surrogate pairs, wildcards.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\?*]|://")

PLAIN_BASENAME = rb"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*"
"""Pattern of names, as bytes, that `validate_basename` accepts; it matches most names."""


def validate_basename(name: object, what: str) -> str:
    """Return a file name from an index if it stays inside the directory of the index.

    Raises:
        InvalidIndexError: If it is absolute, a URL, climbs with ``..``, or is no usable name.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    bad = (
        any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or bool(_FORBIDDEN.search(str(name)))
        or bool(_DRIVE.match(str(name)))
        or parts[0].startswith((".streamplug", "~"))
    )
    if bad:
        raise InvalidIndexError(
            f"{what}.basename {name!r:.80} is not a relative path inside the data set; "
            "do not use this index unless you know where it comes from"
        )
    return str(name)
