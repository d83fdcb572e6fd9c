"""Appending to an existing data set."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.errors import AccessDenied, ConfigError, NotFound, WriterError
from streamplug.index import INDEX_NAME, Schema, format_index, parse_index
from streamplug.interfaces import Format, Storage
from streamplug.transfer import call_with_retries

_NUMBER = re.compile(r"shard\.([0-9]+)\.")


@dataclass(frozen=True)
class AppendedDataset:
    """An existing data set that a writer appends to.

    `data` is its index.json, `version` what tells that this file has changed (None if the storage does
    not), `schema` the one of its last shard, `number` that of its next shard, and `num_samples` the number
    of its samples.
    """

    storage: Storage
    data: bytes
    version: tuple[int, str] | None
    schema: Schema | None
    number: int
    num_samples: int
    retries: int

    @classmethod
    def read(cls, storage: Storage, retries: int) -> AppendedDataset:
        """Read the index of a data set."""
        url = storage.url_of(INDEX_NAME)
        try:
            # Before the content: a change between the two is noticed by a comparison of the content.
            version = call_with_retries(lambda: _version(storage), retries, option="retry")
            data = call_with_retries(lambda: storage.read(INDEX_NAME), retries, option="retry")
        except NotFound:
            raise NotFound(
                f"{url} does not exist: there is no data set to append to; leave out append=True"
            ) from None
        index = parse_index(data, url)  # raises if it is damaged
        shards = range(len(index))
        names = (raw.basenames[shard] for raw, _ in index.file_tables for shard in shards)
        numbers = [int(match[1]) + 1 for name in names if (match := _NUMBER.match(name))]
        last = index.schema(len(index) - 1) if len(index) else None
        number = max(numbers, default=len(index))
        return cls(storage, data, version, last, number, int(index.starts[-1]), retries)

    @property
    def hashes(self) -> Sequence[str] | None:
        """Names of the digests of the last shard; None without shards."""
        return None if self.schema is None else self.schema.entry.get("hashes") or ()

    def columns(self, columns: Mapping[str, str] | None, format_: Format) -> Mapping[str, str]:
        """Return the columns of new shards, which must match the schema of existing ones."""
        where = self.storage.url
        if self.schema is None:
            if columns is None:
                raise ConfigError(f"{where} has no shards yet: give columns=")
            return columns
        if type(self.schema.format) is not type(format_):
            raise ConfigError(
                f"{where} has the format {self.schema.entry['format']!r}: pass format="
            )
        existing = {column.name: column.spec for column in self.schema.columns}
        if columns is not None and dict(columns) != existing:
            raise ConfigError(
                f"columns={dict(columns)}: {where} has {existing}; leave columns= out"
            )
        return existing

    def is_copied_by(self, path: Path) -> bool:
        """Return whether a local index.json is that of a copy, perhaps before or after shards were added."""
        data = path.read_bytes()
        parse_index(data, str(path))  # raises if it is damaged
        ours, others = json.loads(self.data)["shards"], json.loads(data)["shards"]
        return all(own == other for own, other in zip(ours, others))

    def check(self) -> None:
        """Raise WriterError if another writer changed the data set: its shards would have the same names.

        The index is read only if its version says that it may have changed.
        """
        version = call_with_retries(lambda: _version(self.storage), self.retries, option="retry")
        if version is None or version != self.version:
            self._check_content()

    def _check_content(self) -> None:
        url = self.storage.url_of(INDEX_NAME)
        if (
            call_with_retries(lambda: self.storage.read(INDEX_NAME), self.retries, option="retry")
            != self.data
        ):
            raise WriterError(
                f"{url} was changed while shards were added to it; add the new shards again"
            )

    def extended_index(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the index.json with more shards, if the data set has not changed."""
        self._check_content()
        document = json.loads(self.data)
        extra = {key: value for key, value in document.items() if key not in ("shards", "version")}
        return format_index([*document["shards"], *entries], extra)


def _version(storage: Storage) -> tuple[int, str] | None:
    """Return the size and version of a data set's index; None if the storage has no versions."""
    try:
        info = storage.stat(INDEX_NAME)
    except AccessDenied:  # it may still be read
        return None
    return (info.size, info.version) if info.version else None
