"""Writes one part of a data set, whole or not at all, however many attempts there are at once.

An attempt fills a folder of its own, and a rename makes it the part: so it is with local places. In a storage
that knows no renaming, attempts write the same bytes under the same names, and the index last.
"""

from __future__ import annotations

import json
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamplug.errors import ConfigError, NotFound, StreamplugError, WriterError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.interfaces.storage import public_url
from streamplug.plugin.location import join, local_path, open_storage
from streamplug.plugin.registry import restore
from streamplug.write.writer import Writer

MakeSamples = Callable[[Any], Iterable[Mapping[str, Any]]]

PLAN_NAME = "parts.json"
"""Says what a data set in parts is made of, so that another run does not go on with other parts."""

ATTEMPTS = ".attempts"
"""Folder of what is being written."""


def part_folder(number: int) -> str:
    """Return the folder of a part, below the place of the whole."""
    return f"part-{number:05d}"


@dataclass(frozen=True)
class PartTask:
    """Writes the part that has a number.

    Attributes:
        make_samples: Makes the samples of a part; may have a method `describe` that names a part for errors.
        parts: What it makes them from; not part of the repr, as URLs may have secrets.
        places: Where the whole is: a path or a URL, or both; nor is it.
        columns: Encoding of each column by its name.
        plan: What `PLAN_NAME` says.
        storage_options: Settings of the storage, such as credentials; not part of the repr.
        options: Further arguments of `Writer`.
        registered: Names that were given to classes where the task was made.
        batched: Whether `make_samples` gives batches of columns rather than samples.
    """

    make_samples: MakeSamples
    parts: tuple[Any, ...] = field(repr=False)
    places: tuple[str, ...] = field(repr=False)
    columns: Mapping[str, str]
    plan: Mapping[str, Any]
    storage_options: Mapping[str, Any] | None = field(repr=False)
    options: Mapping[str, Any]
    registered: Mapping[str, Mapping[str, type[Any]]]
    batched: bool = False

    def __call__(self, number: int) -> None:
        """Write the part, unless it is there."""
        restore(self.registered)
        home = open_storage(self.places[-1], self.storage_options)
        index = f"{part_folder(number)}/{INDEX_NAME}"
        try:
            self._check(home)
            if not home.exists(index):
                self._write(number, home)
        except Exception as error:
            with suppress(StreamplugError):
                self._check(home)
                if home.exists(index):
                    return  # another attempt was sooner, and ended before this one
            raise WriterError(f"{self._name(number)}: {type(error).__name__}: {error}") from error

    def _name(self, number: int) -> str:
        """Return what errors call a part; what makes the samples may have words for it."""
        part = _shown(self.parts[number])
        describe = getattr(self.make_samples, "describe", None)
        return f"part {number} ({part!r:.200})" if describe is None else str(describe(part))

    def _check(self, home: Storage) -> None:
        """Refuse a place that is another one on this machine, or now has another data set."""
        try:
            found = json.loads(home.read(PLAN_NAME))
        except NotFound:
            found = None
        if found != self.plan:
            raise ConfigError(
                f"{socket.gethostname()} does not find in {home.url} the {PLAN_NAME} of this data set: a "
                "local path or memory:// is right only where all workers have the same, as on a shared "
                "file system; else give out= a URL, or end an earlier job that still writes there"
            )

    def _write(self, number: int, home: Storage) -> None:
        near = local_path(self.places[0])
        if near is None:
            self._fill(number, home, join(self.places[0], part_folder(number)))
            return
        place, scratch = (
            near / part_folder(number),
            near / ATTEMPTS / f"{number}-{uuid.uuid4().hex}",
        )
        try:
            if len(self.places) == 1:
                self._fill(number, home, scratch)
            else:
                self._fill(number, home, (scratch, join(self.places[1], part_folder(number))))
                if not self.options.get("keep_local"):
                    shutil.rmtree(place, ignore_errors=True)  # of another data set
                    return
            _install(scratch, place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _fill(self, number: int, home: Storage, out: Any) -> None:
        with Writer(
            columns=self.columns, out=out, storage_options=self.storage_options, **self.options
        ) as writer:
            write = writer.write_batch if self.batched else writer.write
            for each in self.make_samples(self.parts[number]):
                write(each)
            self._check(home)


def _shown(part: Any) -> Any:
    """Return what errors call a part: URLs in it may have secrets."""
    if isinstance(part, str):
        return public_url(part)
    if isinstance(part, (list, tuple)):
        return [_shown(each) for each in part]
    return {name: _shown(each) for name, each in part.items()} if isinstance(part, dict) else part


def _install(scratch: Path, place: Path) -> None:
    """Make what an attempt has written the part, unless another attempt has."""
    try:
        scratch.rename(place)
    except OSError:
        if not place.exists():
            raise
    else:
        return
    with suppress(OSError):
        if (place / INDEX_NAME).read_bytes() == (scratch / INDEX_NAME).read_bytes():
            return
    stale = scratch.with_name(f"{scratch.name}-stale")
    place.rename(stale)
    scratch.rename(place)
    shutil.rmtree(stale, ignore_errors=True)


def remove_attempts(places: tuple[str, ...]) -> None:
    """Remove what attempts have left that were killed."""
    near = local_path(places[0])
    if near is not None:
        shutil.rmtree(near / ATTEMPTS, ignore_errors=True)
