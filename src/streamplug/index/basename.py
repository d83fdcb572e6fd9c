"""Validation of file names in an index."""

from __future__ import annotations

import re

from streamplug.errors import InvalidIndexError

_DRIVE = re.compile(r"[A-Za-z]:")
# Control characters, lone surrogates, backslashes, wildcards and URL schemes.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\?*]|://")

PLAIN_BASENAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*"
"""Pattern of common names, all of which `validate_basename` accepts."""


def validate_basename(name: object, what: str) -> str:
    """Return a file name if it is a relative path inside the data set, or raise InvalidIndexError."""
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
