"""Copies tokens from where they are stored to the rows that they belong to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError
from streamplug.interfaces import VectorColumn
from streamplug.interfaces.encoding import gather
from streamplug.read import EncodedValues, Reader
from streamplug.types import Int64
from streamplug_tokens.count import as_tokens


class Parts(NamedTuple):
    """Parts of documents, and where they go.

    Attributes:
        document: Which document each is of, over all streams, shape ``[n]``.
        begin: Its first token in that document.
        size: How many tokens it has; may be 0.
        stored: How many tokens that document was counted to have.
        at: Where among the tokens of all rows it goes.
    """

    document: Int64
    begin: Int64
    size: Int64
    stored: Int64
    at: Int64


class Copier:
    """Copies tokens of one column."""

    def __init__(self, documents: Reader, column: str, dtype: np.dtype[Any], padding: int) -> None:
        """Copy what `documents` reads.

        Args:
            documents: Reads the documents.
            column: Holds their tokens.
            dtype: Of these.
            padding: The token where nothing goes.
        """
        self._documents, self._column = documents, column
        self._dtype, self._padding = dtype, padding

    def rows(self, parts: Parts, count: int, width: int) -> NDArray[Any]:
        """Return rows of tokens, shape ``[count, width]``.

        Raises:
            StreamplugError: If the documents cannot be had, are damaged, or not what was counted.
        """
        starts, missing, found = self._located(parts)
        size = self._dtype.itemsize
        if len(found) == 1 and len(starts) == count and (parts.size == width).all():
            whole = gather(found[0].data, starts, width * size)  # each row is one part
            return whole.view(self._dtype).reshape(count, width)
        tokens = np.full(count * width, self._padding, self._dtype)
        target = memoryview(tokens.view(np.uint8))  # type: ignore[arg-type]  # an array is a buffer
        for memory in found:
            source, those = memoryview(memory.data), memory.places  # type: ignore[arg-type]  # as above
            moves = (parts.at[those] * size, starts[those], parts.size[those] * size)
            for to, start, nbytes in zip(*(each.tolist() for each in moves)):
                target[to : to + nbytes] = source[start : start + nbytes]
        if len(missing):
            self._read(tokens, Parts(*(each[missing] for each in parts)))
        return tokens.reshape(count, width)

    def _located(self, parts: Parts) -> tuple[Int64, Int64, list[EncodedValues]]:
        """Find parts in memory: where each begins, which cannot be found, and what memory that is."""
        starts = np.full(len(parts.size), -1, np.int64)
        wanted = np.flatnonzero(parts.size)
        found = []
        try:
            for memory in self._documents.encoded(parts.document[wanted], self._column):
                places = wanted[memory.places]
                if self._fits(memory, parts.stored[places]):
                    behind = (parts.stored - parts.begin)[places] * self._dtype.itemsize
                    starts[places] = memory.starts + memory.sizes - behind
                    found.append(memory._replace(places=places))
        except Exception:  # noqa: BLE001 - reading whole documents tells which one it is
            return starts, wanted, []
        return starts, wanted[starts[wanted] < 0], found

    def _fits(self, memory: EncodedValues, stored: Int64) -> bool:
        """Say whether all values are what was counted."""
        vectors = memory.column.encoding
        if not isinstance(vectors, VectorColumn):
            return False
        if (vectors.lengths(memory.sizes, self._dtype) != stored).any():
            return False
        return bool(vectors.are_vectors(memory.data, memory.starts, stored, self._dtype).all())

    def _read(self, tokens: NDArray[Any], parts: Parts) -> None:
        """Copy parts of documents that are read whole."""
        documents, which = np.unique(parts.document, return_inverse=True)
        values = self._documents.batch(documents)[self._column]
        for number, (document, begin, size, stored, at) in zip(
            which.tolist(), zip(*(each.tolist() for each in parts))
        ):
            value = self._checked(values[number], document, stored)
            tokens[at : at + size] = value[begin : begin + size]

    def _checked(self, value: Any, document: int, stored: int) -> NDArray[Any]:
        """Return the tokens of a document, if they are as many as were counted."""
        _, shard, file, row = self._documents.locate(document)
        where = f"shard {shard} ({file}): sample {row}, column {self._column!r}"
        try:
            tokens = as_tokens(value, self._dtype)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if len(tokens) != stored:
            raise DataError(f"{where}: {len(tokens)} tokens, where {stored} were counted before")
        return tokens
