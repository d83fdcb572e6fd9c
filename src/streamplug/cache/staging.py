"""Temporary files of a cache: who made them, how large they will be, and whether they still matter.

They lie together in ``.streamplug/tmp``, named ``SLOT-BYTES-CHANCE``: SLOT is the lock that their maker
holds, so that whoever can take that lock knows that the maker is dead; BYTES
is what is set reserved_bytes for them, and 0 for files that hold something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from streamplug.plugin_kit.staging import stage_file
from streamplug.transfer.file_lock import lock_slot, lock_slot_path, state_directory, try_file_lock

_FOLDER = "tmp"


@contextmanager
def staging_path(directory: Path, name: str) -> Iterator[Path]:
    """Yield a path for a temporary file that is gone afterwards.

    No two are the same: what a download that was given up still writes does no harm. Nor is there a file
    yet: some file systems write what replaces one to the disk at once, as if its loss would matter.

    Args:
        directory: The cache.
        name: The file of it whose `cache_lock` is held.
    """
    part = _path(directory, name, 0)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def reserve_bytes(directory: Path, name: str, size: int) -> Path:
    """Reserve bytes for the holder of the lock of `name`: an empty file whose name has the size."""
    part = _path(directory, name, size)
    part.touch()
    return part


def _path(directory: Path, name: str, size: int) -> Path:
    folder = state_directory(directory) / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{lock_slot(name):03d}-{size}-{token_hex(8)}"


def resize_reservation(reservation: Path, size: int) -> Path:
    """Change the size of a reservation."""
    slot, _, chance = reservation.name.split("-")
    with suppress(FileNotFoundError):  # someone has removed the directory
        return reservation.rename(reservation.with_name(f"{slot}-{size}-{chance}"))
    return reservation


@contextmanager
def stage_cache_file(directory: Path, name: str, target: Path) -> Iterator[Path]:
    """Yield a temporary path as `staging_path` does; on success it becomes `target`."""
    with stage_file(target, _path(directory, name, 0)) as part:
        yield part


def remove_stale_files(directory: Path) -> int:
    """Remove the staging files of dead processes; return the bytes that live ones have reserved."""
    slots: dict[int, list[tuple[Path, int]]] = {}
    folder = state_directory(directory) / _FOLDER
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
