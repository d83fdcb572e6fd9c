"""Parsing of cache limits."""

from __future__ import annotations

import re
import shutil
from fractions import Fraction
from pathlib import Path

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError
from streamplug.transfer import map_disk_errors

_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


def parse_cache_limit(value: float | str, directory: Path) -> int:
    """Return a cache limit in bytes.

    The limit is a number of bytes, text such as ``"10gb"``, or ``"50%"`` of the size of the disk of
    `directory`, which need not exist.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        limit = parse_bytes(value, "cache_limit")
    else:
        share = Fraction(match[1]) / 100
        if share > 1:
            raise ConfigError(f"cache_limit={value!r:.60}: a disk has no more than 100%")
        limit = int(share * _disk(directory))
    if limit < 1:
        raise ConfigError(f"cache_limit={value!r:.60}: must be more than 0; None is no limit")
    return limit


def _disk(directory: Path) -> int:
    existing = directory.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    with map_disk_errors(existing):
        return shutil.disk_usage(existing).total
