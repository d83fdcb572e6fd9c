"""Base class of shard writers of lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.errors import EncodeError, EncodeTypeError
from streamplug.interfaces import Column, ShardWriter, WriteSettings
from streamplug.plugin_kit import check_names, count_of, unencodable_error
from streamplug.types import Buffer, Int64
from streamplug_text.row_writer import row_writer
from streamplug_text.split import MAX_FILE, U32, schema_text
from streamplug_text.values import FieldValue


class LinesWriter(ShardWriter):
    """Writes shards of lines; subclasses implement the lines.

    The header and the meta file do not count toward the size limit, so that shards have the same samples as
    those of mosaicml-streaming.

    Attributes:
        columns: Columns of the data set, sorted by name.
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
        """Set the columns, the format's keys in index entries, and the header of data files."""
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
        self._kinds = [_value_of(column) for column in self.columns]

    def _write_rows(self, between: Sequence[str], marks: Sequence[str] = ()) -> None:
        """Encode single samples with a generated function; see `row_writer`."""
        kinds = {column.name: kind for column, kind in zip(self.columns, self._kinds)}
        quick = row_writer(kinds, between, marks, super().encode_pieces)
        self.encode_pieces = quick  # type: ignore[method-assign,assignment]  # names of arguments

    @abstractmethod
    def line(self, texts: Sequence[str]) -> str:
        """Return the line of a sample, given the text of each value.

        Raises:
            EncodeError: If a text is invalid in a line; names the column.
        """

    @abstractmethod
    def plain_lines(self, texts: Sequence[Sequence[str]]) -> list[str]:
        """Return the lines of many samples, given the texts of each column.

        Raises:
            ValueError: If a sample is invalid; `line` raises the precise error.
        """

    def entry(self) -> dict[str, Any]:
        return dict(self._entry)

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        check_names(sample, self._names)
        texts = []
        for column, kind in zip(self.columns, self._kinds):
            try:
                texts.append(kind.text(sample[column.name]))
            except Exception as error:
                raise unencodable_error(column.name, sample[column.name], error) from error
        return self._encoded(texts)

    def _encoded(self, texts: Sequence[str]) -> bytes:
        for column, text in zip(self.columns, texts):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise EncodeError(
                    f"column {column.name!r}: takes what UTF-8 can hold, got {text!r:.80}"
                ) from error
        return self.line(texts).encode()

    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[Buffer, Int64]:
        count = count_of(columns, self._names)
        texts = []
        for column, kind in zip(self.columns, self._kinds):
            try:
                texts.append(kind.texts(columns[column.name]))
            except Exception as error:
                raise unencodable_error(column.name, columns[column.name], error) from error
        rows: Sequence[bytes | str]
        try:
            rows = self.plain_lines(texts)
            together = "".join(rows)
            data = together.encode()
        except ValueError:  # one by one, to name the invalid value
            encoded = list(map(self._encoded, zip(*texts)))
            rows, data = encoded, b"".join(encoded)
        else:
            if len(data) != len(together):  # not ASCII: sizes are in bytes
                rows = [row.encode() for row in rows]
        return data, np.fromiter(map(len, rows), np.int64, count)

    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        offsets = np.full(len(sizes) + 1, len(self._header), np.int64)
        offsets[1:] += np.cumsum(sizes)
        head = np.concatenate([[len(sizes)], offsets]).astype(U32)
        return {
            "data": [b"".join((self._header, *parts))],
            "meta": [head.tobytes(), self._schema],
        }


def _value_of(column: Column) -> FieldValue:
    if not isinstance(column.encoding, FieldValue):
        raise EncodeTypeError(f"column {column.name!r}: {column.spec!r} is not text")
    return column.encoding
