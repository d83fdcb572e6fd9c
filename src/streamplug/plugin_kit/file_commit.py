"""Staging files, which are renamed to their target when complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def commit_file(staging: Path, target: Path) -> None:
    """Rename a complete staging file to its target, creating the target's directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging.replace(target)


@contextmanager
def stage_file(target: Path, staging: Path | None = None) -> Iterator[Path]:
    """Yield a staging path; rename it to `target` on success, remove it on failure.

    Args:
        target: The file to write.
        staging: Path on the same file system. The default depends on `target` alone, so that the leftover
            of a killed process is overwritten; concurrent writers of one target must hold a lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.tmp") if staging is None else staging
    try:
        yield path
        commit_file(path, target)
    finally:
        path.unlink(missing_ok=True)
