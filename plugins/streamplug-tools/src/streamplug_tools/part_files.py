"""Files of a part of a data set, where they are written and in the local copy of what is uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from streamplug.errors import CorruptShardError, InvalidIndexError, UnknownNameError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.plugin_kit import make_directory, sync_directory, sync_files
from streamplug.transfer import (
    DOWNLOAD_TIMEOUT_SECONDS,
    TimeoutStorage,
    call_with_retries,
    map_output_errors,
)
from streamplug.types import FileInfo


def part_folder(number: int) -> str:
    """Return the name of the folder of a part."""
    return f"part-{number:05d}"


def kept_copy(locations: Sequence[str], *, keep_local: bool) -> Path | None:
    """Return the local directory with a copy of what is uploaded; None if there is none."""
    return local_path(locations[0]) if keep_local and len(locations) > 1 else None


def is_whole(folder: Path) -> bool:
    """Return whether the folder of a part has an index, and its files have their sizes.

    A loss of power may leave empty files, unless they were written with ``durable=True``.
    """
    try:
        index = parse_index((folder / INDEX_NAME).read_bytes(), str(folder))
        return all((folder / f.basename).stat().st_size == f.bytes for f in _files(index))
    except (OSError, InvalidIndexError, UnknownNameError):
        return False


def is_whole_in(home: Storage, number: int) -> bool:
    """Return whether a part that has an index is whole; where it is not local, the index was written last."""
    folder = local_path(home.url)
    return folder is None or is_whole(folder / part_folder(number))


def is_copied(home: Storage, copy: Path, number: int) -> bool:
    """Return whether a local copy has a part as it is in a storage."""
    name = part_folder(number)
    if not is_whole(copy / name):
        return False
    index = call_with_retries(partial(home.read, f"{name}/{INDEX_NAME}"))
    return (copy / name / INDEX_NAME).read_bytes() == index


def fetch_part(home: Storage, number: int, folder: Path, *, durable: bool) -> None:
    """Copy a part of a storage to a new local folder, and sync it to the disk if `durable`."""
    source, name = TimeoutStorage(home, DOWNLOAD_TIMEOUT_SECONDS), part_folder(number)
    data = call_with_retries(partial(source.read, f"{name}/{INDEX_NAME}"))
    index = parse_index(data, home.url_of(f"{name}/{INDEX_NAME}"))
    with map_output_errors(folder):
        make_directory(folder)
        for file in _files(index):
            fetch = partial(_fetch, source, f"{name}/{file.basename}", folder, file)
            call_with_retries(fetch)
        (folder / INDEX_NAME).write_bytes(data)
        if durable:
            sync_files(folder.iterdir())
            sync_directory(folder)


def _fetch(source: Storage, key: str, folder: Path, file: FileInfo) -> None:
    path = folder / file.basename
    source.download(key, path)
    size = path.stat().st_size
    if size != file.bytes:
        raise CorruptShardError(
            f"{source.url_of(key)} has {size} bytes, the index of its part says {file.bytes}; remove the "
            "part, and call again"
        )


def _files(index: Index) -> list[FileInfo]:
    """Return the files of an index as they are stored."""
    shards = (index.shard(number) for number in range(len(index)))
    files = [file.zip or file.raw for shard in shards for file in shard.files.values()]
    return [*files, *index.value_sizes]
