"""Lays out samples as the members of a tar archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, CorruptShardError, EncodeError, EncodeTypeError
from streamplug.interfaces import Column, ShardWriter, WriteSettings
from streamplug.plugin_kit import encoded_bytes, length_of, unencodable_error
from streamplug.types import Buffer, Int64
from streamplug_webdataset.grouping import Grouping
from streamplug_webdataset.headers import Headers
from streamplug_webdataset.members import BLOCK, Member, Members
from streamplug_webdataset.names import KEY, extension_problem, key_problem
from streamplug_webdataset.sample_locations import MAX_BLOCKS

_END = bytes(2 * BLOCK)
_PADDING = [bytes(-size % BLOCK) for size in range(BLOCK)]
_MAX_VALUE = 8**11 - 1
_SMALL, _TOGETHER = 1 << 14, 1 << 20


class TarWriter(ShardWriter):
    """Lays out archives of one data set: the members of a sample in the order of their extensions."""

    base_size = len(_END)
    row_overhead = 0
    max_size = MAX_BLOCKS * BLOCK - 1

    def __init__(self, columns: Sequence[Column], settings: WriteSettings, mtime: int) -> None:
        """Write these columns, of which one is ``__key__``; `mtime` in seconds since 1970.

        Raises:
            ConfigError: If they are not columns of archives.
        """
        names = [column.name for column in columns]
        if KEY not in names or len(names) < 2:
            raise ConfigError(
                f"columns={names}: an archive needs {KEY!r}, a str, and at least one more column"
            )
        for column in columns:
            problem = None if column.name == KEY else extension_problem(column.name)
            if column.name == KEY and column.spec != "str":
                problem = f"must be a str, not {column.spec}"
            if problem:
                raise ConfigError(f"column {column.name!r} {problem}")
        self._entry = {
            "columns": {c.name: c.spec for c in sorted(columns, key=lambda c: c.name)},
            "compression": settings.compression,
            "format": "webdataset",
            "hashes": list(settings.hashes),
            "size_limit": settings.size_limit,
            "version": 2,
        }
        self._names = set(names)
        self._columns = sorted((c for c in columns if c.name != KEY), key=lambda c: c.name)
        headers = Headers(mtime)
        self._plan = [(c.name, c.encoding.encode, headers.ending(c.name)) for c in self._columns]

    def entry(self) -> dict[str, Any]:
        return dict(self._entry)

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        self._check_names(sample)
        values: list[bytes | None] = []
        name = ""
        try:
            for name, encode, _ in self._plan:
                value = sample[name]
                if value is None:
                    values.append(None)
                    continue
                body = encode(value)
                values.append(body if type(body) is bytes else encoded_bytes(body))
        except Exception as error:
            raise unencodable_error(name, sample[name], error) from error
        return self._row(sample[KEY], values)

    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[Buffer, Int64]:
        self._check_names(columns)
        length_of(columns)  # refuses what differs
        encoded = [_encoded(column, columns[column.name]) for column in self._columns]
        rows = [self._row(key, row) for key, row in zip(columns[KEY], zip(*encoded))]
        return b"".join(rows), np.array([len(row) for row in rows], np.int64)

    def _row(self, key: Any, values: Sequence[Any]) -> bytes:
        if not isinstance(key, str):
            raise EncodeTypeError(
                f"column {KEY!r}: takes a str, got {type(key).__name__}: {key!r:.80}"
            )
        if problem := key_problem(key):
            raise EncodeError(f"column {KEY!r}: the key {key!r:.80} {problem}")
        parts: list[bytes] = []
        for (name, _, header), value in zip(self._plan, values):
            if value is None:
                continue
            size = len(value)
            if size > _MAX_VALUE:
                raise EncodeError(
                    f"column {name!r}: {size} bytes: archives take values below 8 GiB"
                )
            parts += (header(key, size), value, _PADDING[size % BLOCK])
        if not parts:
            raise EncodeError(
                f"the sample {key!r} has no values but None in {sorted(self._names - {KEY})}"
            )
        return b"".join(parts)

    def _check_names(self, sample: Mapping[str, Any]) -> None:
        if not isinstance(sample, Mapping):
            raise EncodeTypeError(
                f"a sample maps extensions to values, got {type(sample).__name__}: {sample!r:.80}"
            )
        if sample.keys() == self._names:
            return
        missing = sorted(self._names - sample.keys())
        unknown = sorted(map(str, sample.keys() - self._names))
        raise EncodeError(
            f"a sample must have the columns {sorted(self._names)}, those without a value as None"
            + (f"; missing: {missing}" if missing else "")
            + (f"; unknown: {unknown}" if unknown else "")
        )

    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        grouping = Grouping()
        try:
            for member in _members(parts):
                grouping.add(member)
        except CorruptShardError as error:
            raise EncodeError(f"two samples in a row with one key would be one: {error}") from error
        if len(grouping.keys) != len(sizes):
            raise EncodeError(
                f"{len(sizes)} samples would be read as {len(grouping.keys)}: some in a row have one key, "
                f"of those from {grouping.keys[0]!r} to {grouping.keys[-1]!r}; give each its own"
            )
        places = grouping.places(int(sizes.sum()) + len(_END))
        return {"data": [*parts, _END], "places": [places.pack()]}


def _members(parts: Sequence[Buffer]) -> Iterator[Member]:
    """Yield the members of whole samples back to back, in any number of pieces."""
    before = 0
    for data in _pieces(parts):
        for name, begin, size in Members(_Ended(data).read, len(data) + BLOCK):
            yield Member(name, begin + before, size)
        before += len(data)


def _pieces(parts: Sequence[Buffer]) -> Iterator[bytes]:
    """Yield small parts together, of which there may be very many, and large ones as they are."""
    small: list[Buffer] = []
    total = 0
    for part in parts:
        if len(part) > _SMALL or total > _TOGETHER:
            yield b"".join(small)
            small, total = [], 0
        if len(part) > _SMALL:
            yield bytes(part)
        else:
            small.append(part)
            total += len(part)
    yield b"".join(small)


class _Ended:
    """A piece of an archive, with an end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, start: int, stop: int) -> bytes:
        return self._data[start:stop] or _END[:BLOCK]


def _encoded(column: Column, values: Any) -> list[Any]:
    """Return the stored values of a column, with None for those that are None."""
    encoding = column.encoding
    have = [i for i, value in enumerate(values) if value is not None]
    try:
        if len(have) == len(values):
            made = encoding.encode_batch(values)
        else:
            made = [encoding.encode(values[i]) for i in have]
        if isinstance(made, list):
            made = [body if type(body) is bytes else encoded_bytes(body) for body in made]
    except Exception as error:
        raise unencodable_error(column.name, values, error) from error
    if not isinstance(made, list):
        size, flat = encoding.size or 0, made.reshape(-1).tobytes()
        made = [flat[at : at + size] for at in range(0, len(flat), size or 1)]
    if len(made) != len(have):
        raise EncodeError(
            f"column {column.name!r}: encode_batch of {type(encoding).__name__} returned {len(made)} values "
            f"for {len(have)}"
        )
    if len(have) == len(values):
        return made
    filled: list[Any] = [None] * len(values)
    for place, value in zip(have, made):
        filled[place] = value
    return filled
