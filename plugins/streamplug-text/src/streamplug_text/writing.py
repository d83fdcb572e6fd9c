"""Writes shards of lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.errors import EncodeError, EncodeTypeError
from streamplug.interfaces import Column, ShardWriter, WriteSettings
from streamplug.interfaces.given import check_names, count_of
from streamplug.types import Buffer, Int64
from streamplug_text.split import MAX_FILE, U32, schema_text
from streamplug_text.values import Value


class LinesWriter(ShardWriter):
    """Lays out shards of one data set; subclasses say what a line is.

    The header and the meta file do not count against the size limit, so that shards are cut where
    mosaicml-streaming cuts them.

    Attributes:
        columns: Those of the data set, sorted by name.
    """

    base_size = 0
    row_overhead = 0

    def __init__(
        self,
        columns: Sequence[Column],
        settings: WriteSettings,
        keys: Mapping[str, Any],
        header: bytes = b"",
    ) -> None:
        """Take the columns, the keys that the format adds to an entry, and what a data file begins with."""
        self.columns = sorted(columns, key=lambda column: column.name)
        self._entry = {
            "compression": settings.compression,
            "hashes": list(settings.hashes),
            "size_limit": settings.size_limit,
            "version": 2,
            **keys,
        }
        self._schema = schema_text(self._entry)
        self._header = header
        self.max_size = MAX_FILE - len(header)
        self._names = {column.name for column in columns}
        self._plan = []
        for column in self.columns:
            value = column.encoding
            if not isinstance(value, Value):
                raise EncodeTypeError(f"column {column.name!r}: {column.spec!r} is not text")
            self._plan.append((column.name, value.plain, value.render, value.text))

    @abstractmethod
    def line(self, texts: Sequence[str]) -> str:
        """Return the line of a sample.

        Raises:
            EncodeError: If a text cannot stand in it; the message names the column.
        """

    def entry(self) -> dict[str, Any]:
        return dict(self._entry)

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        check_names(sample, self._names)
        texts = []
        name = ""
        try:
            for name, plain, render, text in self._plan:
                value = sample[name]
                texts.append(render(value) if type(value) is plain else text(value))
        except (EncodeError, ValueError) as error:
            raise _unencodable(name, error) from error
        try:
            return self.line(texts).encode()
        except UnicodeEncodeError as error:
            raise self._not_text([texts]) from error

    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[Buffer, Int64]:
        count = count_of(columns, self._names)
        texts = []
        for column in self.columns:
            value: Any = column.encoding
            try:
                texts.append(value.texts(columns[column.name]))
            except (EncodeError, ValueError, TypeError) as error:
                raise _unencodable(column.name, error) from error
        lines = list(map(self.line, zip(*texts)))
        together = "".join(lines)
        try:
            data = together.encode()
            # Where all is ASCII, a character is a byte.
            rows: Sequence[Any] = (
                lines if len(data) == len(together) else [line.encode() for line in lines]
            )
        except UnicodeEncodeError as error:
            raise self._not_text(list(zip(*texts))) from error
        return data, np.fromiter(map(len, rows), np.int64, count)

    def _not_text(self, rows: Sequence[Sequence[str]]) -> EncodeError:
        """Return the error for texts of which one cannot be had in UTF-8."""
        for texts in rows:
            for column, text in zip(self.columns, texts):
                try:
                    text.encode()
                except UnicodeEncodeError:
                    return EncodeError(
                        f"column {column.name!r}: takes what UTF-8 can hold, got {text!r:.80}"
                    )
        return EncodeError("a value cannot be had in UTF-8")

    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        offsets = np.full(len(sizes) + 1, len(self._header), np.int64)
        offsets[1:] += np.cumsum(sizes)
        head = np.concatenate([[len(sizes)], offsets]).astype(U32)
        return {
            "data": [b"".join((self._header, *parts))],
            "meta": [head.tobytes(), self._schema],
        }


def _unencodable(column: str, error: Exception) -> EncodeError:
    if isinstance(error, EncodeError):
        return type(error)(f"column {column!r}: {error}")
    return EncodeError(f"column {column!r}: {type(error).__name__}: {error}")
