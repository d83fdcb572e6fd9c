"""Text corpus of the sources of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = {
    "module": "str",
    "path": "str",
    "size": "int",
    "text": "str",
    "tokens": "ndarray:uint16",
}
"""Encoding of each column of a sample."""


_ROOT = Path(sysconfig.get_path("stdlib"))
_SKIPPED_FOLDERS = frozenset(("site-packages", "dist-packages", "__pycache__"))


def source_files() -> list[Path]:
    """Return the Python files of the standard library, sorted."""
    paths = _ROOT.rglob("*.py")
    return sorted(p for p in paths if _SKIPPED_FOLDERS.isdisjoint(p.relative_to(_ROOT).parts))


def read_sample(path: Path) -> dict[str, Any] | None:
    """Return the sample of a file, or None if it is not UTF-8, as some files of the test suite."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    relative = path.relative_to(_ROOT)
    # One token per byte needs no vocabulary, and leaves 0 for the end of a text.
    tokens = np.frombuffer(data, np.uint8).astype(np.uint16) + 1
    return {
        "module": ".".join(relative.with_suffix("").parts).removesuffix(".__init__"),
        "path": relative.as_posix(),
        "size": len(data),
        "text": text,
        "tokens": np.append(tokens, np.uint16(0)),
    }
