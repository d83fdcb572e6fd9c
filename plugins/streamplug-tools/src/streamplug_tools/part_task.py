"""Atomic writing of one part of a data set, with any number of concurrent attempts.

In a local directory, each attempt fills its own folder, which is renamed to that of the part. In a storage
without renames, attempts write the same bytes under the same names, and the index last.
"""

from __future__ import annotations

import errno
import json
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from streamplug_files import PLAN_NAME

from streamplug.errors import (
    ConfigError,
    EncodeError,
    NotFound,
    StreamplugError,
    WriterError,
)
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage, public_url
from streamplug.plugin import join, local_path, open_storage, restore
from streamplug.plugin_kit import sync_directory
from streamplug.write import Writer
from streamplug_tools.bad_samples import BadSampleError
from streamplug_tools.part_counts import open_counts
from streamplug_tools.part_files import (
    fetch_part,
    is_copied,
    is_whole,
    is_whole_in,
    kept_copy,
    part_folder,
)
from streamplug_tools.row_access import batch_rows_of

MakeSamples = Callable[[Any], Iterable[Mapping[str, Any]]]

ATTEMPTS = ".attempts"
"""Folder of unfinished parts."""

_SAMPLES_PER_COUNT = 64
_OCCUPIED_ERRNOS = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
"""What renaming a folder to the path of a folder with files, or of a file, raises."""


@dataclass(frozen=True)
class PartTask:
    """Writes a part, given its number.

    `make_samples` may have a method `describe` that names a part in errors, and a method `share` that returns
    it for workers on other machines, given a location for files that all see and its storage options. What it
    returns may have a method `skip`, which takes the row of the last batch that cannot be stored and its
    error, and a method `report`, which takes the storage and the number of the part once it is filled. The
    repr leaves out `parts` and `locations`, as URLs may contain secrets. `registered` are the plugins
    registered by name in the process that made the task. `counts` is the path of a file of `open_counts`.
    """

    make_samples: MakeSamples
    parts: tuple[Any, ...] = field(repr=False)
    locations: tuple[str, ...] = field(repr=False)
    columns: Mapping[str, str]
    plan: Mapping[str, Any]
    storage_options: Mapping[str, Any] | None = field(repr=False)
    options: Mapping[str, Any]
    registered: Mapping[str, Mapping[str, type[Any]]]
    batched: bool = False
    counts: str = field(default="", repr=False)

    def __call__(self, number: int) -> None:
        """Write the part, unless it exists."""
        restore(self.registered)
        home = open_storage(self.locations[-1], self.storage_options)
        index = f"{part_folder(number)}/{INDEX_NAME}"
        copy = kept_copy(self.locations, keep_local=self.options.get("keep_local", False))
        try:
            self._check(home)
            if home.exists(index):
                if is_whole_in(home, number):
                    if copy is not None and not is_copied(home, copy, number):
                        self._fetch(number, home, copy)
                    return
                home.delete(index)
            self._write(number, home)
        except BadSampleError:
            raise
        except Exception as error:
            with suppress(StreamplugError):
                self._check(home)
                # Another attempt may have finished before this one, with a copy if there is to be one.
                if home.exists(index) and (copy is None or is_copied(home, copy, number)):
                    return
            raise WriterError(f"{self._name(number)}: {type(error).__name__}: {error}") from error

    def _name(self, number: int) -> str:
        part = _redact(self.parts[number])
        describe = getattr(self.make_samples, "describe", None)
        return f"part {number} ({part!r:.200})" if describe is None else str(describe(part))

    def _check(self, home: Storage) -> None:
        """Raise if the location is another one on this machine, or now has another data set."""
        try:
            plan = json.loads(home.read(PLAN_NAME))
        except (NotFound, ValueError, RecursionError):
            plan = None
        if plan != self.plan:
            raise ConfigError(
                f"{socket.gethostname()} finds no {PLAN_NAME} of this data set in {home.url}: all workers "
                "need the same out=, such as a URL or a directory of a shared file system; or end an earlier "
                "job that still writes there"
            )

    def _write(self, number: int, home: Storage) -> None:
        local_folder = local_path(self.locations[0])
        if local_folder is None:
            self._fill(number, home, join(self.locations[0], part_folder(number)))
            return
        location = local_folder / part_folder(number)
        scratch = _attempts(local_folder, self.locations) / f"{number}-{uuid.uuid4().hex}"
        try:
            if len(self.locations) == 1:
                self._fill(number, home, scratch)
            else:
                self._fill(number, home, (scratch, join(self.locations[1], part_folder(number))))
                if not self.options.get("keep_local"):
                    return
            install_attempt(scratch, location)
            if self.options.get("durable", True):
                sync_directory(local_folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _fetch(self, number: int, home: Storage, copy: Path) -> None:
        """Copy a part that is whole to the local directory."""
        scratch = _attempts(copy, self.locations) / f"{number}-{uuid.uuid4().hex}"
        folder = part_folder(number)
        try:
            durable = self.options.get("durable", True)
            fetch_part(home, number, scratch, durable=durable)
            install_attempt(scratch, copy / folder)
            if durable:
                sync_directory(copy)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _fill(self, number: int, home: Storage, out: Any) -> None:
        with Writer(
            columns=self.columns, out=out, storage_options=self.storage_options, **self.options
        ) as writer:
            write = writer.write_batch if self.batched else writer.write
            counts = open_counts(self.counts, number)
            every = 1 if self.batched else _SAMPLES_PER_COUNT
            made = self.make_samples(self.parts[number])
            skip = getattr(made, "skip", None)
            for calls, samples in enumerate(made):
                try:
                    write(samples)
                except EncodeError:
                    if skip is None:
                        raise
                    _write_rows(writer, samples, skip)
                if counts is not None and calls % every == 0:
                    counts[:] = writer.written
            if counts is not None:
                counts[:] = writer.written
            if report := getattr(made, "report", None):
                report(home, number)
            self._check(home)


def _write_rows(
    writer: Writer, batch: Mapping[str, Any], skip: Callable[[int, Exception], None]
) -> None:
    """Write a batch that has rows which cannot be stored without these."""
    for row in range(max(map(len, batch.values()), default=0)):
        try:
            writer.write_batch(batch_rows_of(dict(batch), row, row + 1))
        except EncodeError as error:
            skip(row, error)


def _redact(part: Any) -> Any:
    if isinstance(part, str):
        return public_url(part)
    if isinstance(part, (list, tuple)):
        return [_redact(item) for item in part]
    return (
        {name: _redact(value) for name, value in part.items()} if isinstance(part, dict) else part
    )


def install_attempt(scratch: Path, location: Path) -> None:
    """Rename the folder of an attempt to that of its part, unless one with the same index is there."""
    stale = scratch.with_name(f"{scratch.name}-stale")
    while True:  # until no other attempt is renamed in between
        try:
            scratch.rename(location)
        except OSError as error:
            if error.errno not in _OCCUPIED_ERRNOS:
                raise
        else:
            return
        with suppress(OSError):
            same = (location / INDEX_NAME).read_bytes() == (scratch / INDEX_NAME).read_bytes()
            if same and is_whole(location):
                return
        with suppress(FileNotFoundError):
            location.rename(stale)
            shutil.rmtree(stale, ignore_errors=True)


def remove_attempts(locations: tuple[str, ...]) -> None:
    """Remove the folders of killed attempts."""
    local_folder = local_path(locations[0])
    if local_folder is not None:
        folder = _attempts(local_folder, locations)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # other data sets have attempts there
            folder.parent.rmdir()


def _attempts(local_folder: Path, locations: tuple[str, ...]) -> Path:
    """Return the folder of attempts of one data set: others may share the local directory of a pair."""
    return (
        local_folder
        / ATTEMPTS
        / xxhash.xxh3_64_hexdigest(locations[-1].encode(errors="surrogateescape"))
    )
