"""Staging files: written beside their target or elsewhere on its file system, then renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def commit_file(staging: Path, target: Path) -> None:
    """Rename a finished staging file to its target, whose directory is made if necessary."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging.replace(target)


@contextmanager
def stage_file(target: Path, staging: Path | None = None) -> Iterator[Path]:
    """Yield a staging path; on success it is renamed to `target`, on failure removed.

    Args:
        target: The file to write.
        staging: Path on the same file system. The default is a name that depends on `target` alone, so
            that what a killed process left is written over; two writers of one target must hold a lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.tmp") if staging is None else staging
    try:
        yield path
        commit_file(path, target)
    finally:
        path.unlink(missing_ok=True)
