"""Text corpus of the sources of Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
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


def sources() -> list[Path]:
    """Return the Python files of the standard library, sorted."""
    root = Path(sysconfig.get_path("stdlib"))
    skip = {"site-packages", "dist-packages", "__pycache__"}
    return sorted(p for p in root.rglob("*.py") if skip.isdisjoint(p.relative_to(root).parts))


def samples(paths: list[Path], unreadable: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield one sample per file; add files that are not UTF-8 to `unreadable`."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in paths:
        data = path.read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError:  # some files of the test suite
            unreadable.append(path)
            continue
        relative = path.relative_to(root)
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        # One token per byte needs no vocabulary, and leaves 0 for the end of a text.
        tokens = np.frombuffer(data, np.uint8).astype(np.uint16) + 1
        yield {
            "module": module,
            "path": relative.as_posix(),
            "size": len(data),
            "text": text,
            "tokens": np.append(tokens, np.uint16(0)),
        }
