"""Copying of the files of a data set, byte for byte.

The copy has an index once all files are there. Until then, a plan names the files that it will have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import fspath
from pathlib import Path
from typing import Any

import xxhash
from streamplug_files import PLAN_NAME

from streamplug.config import suggest_keywords, whole_number
from streamplug.errors import ConfigError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin import local_path, open_storage
from streamplug.stream import Stream
from streamplug.transfer import (
    DOWNLOAD_TIMEOUT_SECONDS,
    TemporaryDirectory,
    TimeoutStorage,
    call_with_retries,
    map_output_errors,
    map_threads,
    verify_file,
)
from streamplug.types import FileInfo
from streamplug.write import delete_durably
from streamplug_tools.dataset_files import read_own_index, stored_files
from streamplug_tools.dataset_removal import COPIED, check_empty
from streamplug_tools.options import (
    JobProgress,
    Location,
    ProgressCallback,
    ignore_progress,
    whole_stream,
)
from streamplug_tools.real_location import RealLocation

_FILES_PER_THREAD = 16  # submitted at a time


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Result of a copy.

    Attributes:
        url: URL of the copy.
        files: Number of its files, without the index.
        bytes: Bytes of these files.
        copied: Number of files that this call copied; the others were there from an earlier call.
    """

    url: str
    files: int
    bytes: int
    copied: int


@suggest_keywords
def copy_files(
    source: Location | Stream,
    out: Location,
    *,
    num_threads: int = 8,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> CopyResult:
    """Copy the files of a data set, byte for byte, to another directory or storage.

    The index and the files that it names are copied, and no others. Each file is verified by its size and
    checksum. The index is written last. If a call is killed, or files of the copy are lost, the same call
    copies the missing files.

    Args:
        source: Path, URL or stream of a data set with an index.json.
        out: A path or URL.
        num_threads: Number of files that are copied in parallel.
        storage_options: Options of the storage of the copy.
        on_progress: Called with the progress, from time to time.

    Returns:
        What was copied; also if a repeated call finds the whole copy.

    Raises:
        ConfigError: If the source is a view, a table or has no index of streamplug, or is `out`.
        OutputExistsError: If `out` has another data set, or other files.
        CorruptShardError: If a file of the source has not the size that its index says.
        HashMismatchError: If it has not the checksum.
    """
    threads = whole_number("num_threads", num_threads, 1) or 1
    stream = whole_stream(source)
    index, data = read_own_index(stream)
    files = stored_files(index)
    home = open_storage(fspath(out), storage_options)
    places = [RealLocation.of(s.endpoint, s.url) for s in (stream.storage, home)]
    if places[0].is_same(places[1]):
        raise ConfigError(f"{home.url} is the source; choose another location")
    plan = json.dumps(
        {COPIED: [file.basename for file in files], "index": xxhash.xxh3_128_hexdigest(data)}
    ).encode()
    has_index = _has_index(home, data)
    if not has_index:
        _start(home, plan)
    sizes = {info.key: info.size for info in home.list("")}
    missing = [file for file in files if sizes.get(file.basename) != file.bytes]
    done, num_bytes = len(files) - len(missing), 0
    with TemporaryDirectory() as folder:
        transfer = partial(_transfer, stream.storage, home, folder)
        for start in range(0, len(missing), _FILES_PER_THREAD * threads):
            for size in map_threads(
                transfer, missing[start : start + _FILES_PER_THREAD * threads], threads
            ):
                done, num_bytes = done + 1, num_bytes + size
                on_progress(JobProgress("copying", done, len(files), "files", num_bytes))
    if not has_index:
        call_with_retries(partial(home.write, INDEX_NAME, data))
    _remove_plan(home, plan)
    return CopyResult(home.url, len(files), sum(file.bytes for file in files), len(missing))


def _has_index(home: Storage, data: bytes) -> bool:
    """Return whether the index of a copy is there.

    Raises:
        OutputExistsError: If there is another one.
    """
    try:
        existing = call_with_retries(partial(home.read, INDEX_NAME))
    except NotFound:
        return False
    if existing != data:
        raise OutputExistsError(
            f"{home.url} already holds another data set; choose another location, or remove it with "
            "streamplug delete"
        )
    return True


def _start(home: Storage, plan: bytes) -> None:
    """Write the plan, unless a killed call wrote it."""
    try:
        existing = call_with_retries(partial(home.read, PLAN_NAME))
    except NotFound:
        check_empty(home)
        call_with_retries(partial(home.write, PLAN_NAME, plan))
        return
    if existing != plan:
        raise OutputExistsError(
            f"{home.url} holds an unfinished data set that is no copy of this one; choose another location, "
            "or remove it with streamplug delete"
        )


def _remove_plan(home: Storage, plan: bytes) -> None:
    """Remove the plan of a copy that is complete, but none that was copied in place of it."""
    try:
        existing = call_with_retries(partial(home.read, PLAN_NAME))
    except NotFound:
        return
    if existing == plan:
        delete_durably(home, PLAN_NAME)


def _transfer(source: Storage, home: Storage, folder: Path, file: FileInfo) -> int:
    """Copy a file, and return its bytes."""
    name, root = file.basename, local_path(source.url)
    if root is not None:
        path = root / name
        if not path.exists():
            raise NotFound(
                f"{path} does not exist, but the index names it: the data set is not whole"
            )
        verify_file(path, file, None, str(path))
        call_with_retries(partial(home.upload, path, name))
        return file.bytes
    path = folder / xxhash.xxh3_128_hexdigest(name.encode())

    def fetch() -> None:
        with map_output_errors(path, file.bytes):
            TimeoutStorage(source, DOWNLOAD_TIMEOUT_SECONDS).download(name, path)
        verify_file(path, file, None, source.url_of(name))

    try:
        call_with_retries(fetch)
        call_with_retries(partial(home.upload, path, name))
    finally:
        path.unlink(missing_ok=True)
    return file.bytes
