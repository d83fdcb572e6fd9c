"""Names of the staging files in a cache, and reservation of the space that they will need.

They are in ``.streamplug/tmp``, named ``SLOT-BYTES-TOKEN``: SLOT is the lock slot that the owner holds, so
that a process that can take this lock knows that the owner is dead. BYTES is the size of a reservation,
and 0 for staging files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from streamplug.plugin_kit import stage_file
from streamplug.transfer import (
    STAGING_DIR,
    lock_slot,
    lock_slot_path,
    state_directory,
    try_file_lock,
)


@contextmanager
def staging_path(directory: Path, name: str) -> Iterator[Path]:
    """Yield a unique staging path, and remove the file afterwards.

    The name is unique so that an abandoned download that still writes does no harm. The file is not created,
    as some file systems flush a file that replaces another one to disk at once. The caller holds the
    `cache_lock` of `name`.
    """
    part = _path(directory, name, 0)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def reserve_bytes(directory: Path, name: str, size: int) -> Path:
    """Create a reservation for the holder of the `cache_lock` of `name`."""
    part = _path(directory, name, size)
    part.touch()
    return part


def _path(directory: Path, name: str, size: int) -> Path:
    folder = state_directory(directory) / STAGING_DIR
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{lock_slot(name):03d}-{size}-{token_hex(8)}"


def resize_reservation(reservation: Path, size: int) -> Path:
    """Change the size of a reservation, and return its new path."""
    slot, _, chance = reservation.name.split("-")
    with suppress(FileNotFoundError):  # the directory was removed
        return reservation.rename(reservation.with_name(f"{slot}-{size}-{chance}"))
    return reservation


@contextmanager
def stage_cache_file(
    directory: Path, name: str, target: Path, *, durable: bool = True
) -> Iterator[Path]:
    """Yield a staging path that is renamed to `target` on success."""
    with stage_file(target, _path(directory, name, 0), durable=durable) as part:
        yield part


def remove_stale_files(directory: Path) -> int:
    """Remove the staging files of dead processes; return the bytes reserved by live ones."""
    slots: dict[int, list[tuple[Path, int]]] = {}
    folder = state_directory(directory) / STAGING_DIR
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return 0
    for path in paths:
        fields = path.name.split("-")
        if len(fields) >= 3 and fields[0].isdigit() and fields[1].isdigit():
            slots.setdefault(int(fields[0]), []).append((path, int(fields[1])))
    reserved_bytes = 0
    for slot, files in slots.items():
        with try_file_lock(lock_slot_path(directory, slot)) as free:
            for path, size in files:
                if free:
                    with suppress(OSError):
                        path.unlink()
                else:
                    reserved_bytes += size
    return reserved_bytes
