"""Counts the tokens of the documents of a stream, from as little of it as will do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.index import Schema
from streamplug.interfaces import Column, RangeReadableFormat, VectorColumn
from streamplug.session.open_stream import OpenStream
from streamplug.transfer.pool import run_all
from streamplug.types import Int64
from streamplug_tokens.ends import Ends, Even, Listed
from streamplug_tokens.kept import Kept

_AT_ONCE = 32
"""Shards whose heads are fetched at once."""
_READ_AT_ONCE = 4
"""Shards that are read whole at once."""
_ROWS = 1024
_LOG = logging.getLogger("streamplug_tokens")


def dtype_of(opened: OpenStream, name: str, given: str | None) -> np.dtype[Any]:
    """Return the dtype of the tokens of a column.

    Raises:
        ConfigError: If there is no such column of tokens, or nobody says what they are.
    """
    found = {_dtype(opened, schema, name, given) for schema in opened.index.schemas}
    if len(found) != 1:
        raise ConfigError(
            f"{opened.where}: column {name!r} has the dtypes {sorted(map(str, found))}"
        )
    return found.pop()


def _dtype(opened: OpenStream, schema: Schema, name: str, given: str | None) -> np.dtype[Any]:
    column = _column(opened, schema, name)
    what = f"{opened.where}: column {name!r}, {column.spec!r}"
    if not isinstance(column.encoding, VectorColumn):
        raise ConfigError(
            f"{what}: tokens are read of 'bytes' or one-dimensional 'ndarray' columns"
        )
    if given is None and column.encoding.item is None:
        raise ConfigError(f"{what}, does not say of what dtype its tokens are: pass dtype=")
    try:
        wanted = np.dtype(given).newbyteorder("<") if given is not None else None
    except TypeError:
        raise ConfigError(f"dtype={given!r}: expected the name of one, such as 'uint16'") from None
    item = column.encoding.item or wanted
    if item is None or (wanted is not None and wanted != item):
        raise ConfigError(f"{what}, has tokens of {item}, not dtype={given!r}")
    if item.kind not in "iu":
        raise ConfigError(f"{what}: tokens are whole numbers, not {item}")
    return item


def _column(opened: OpenStream, schema: Schema, name: str) -> Column:
    column = schema.column(name)
    if column is None:
        raise ConfigError(f"{opened.where} has no column {name!r}")
    return column


def ends_of(opened: OpenStream, kept: Kept, name: str, dtype: np.dtype[Any], extra: int) -> Ends:
    """Return where the documents of a stream end, each with so many tokens added.

    Raises:
        StreamplugError: If the shards cannot be had, or are damaged.
    """
    fixed = {_fixed(schema, name, dtype) for schema in opened.index.schemas}
    if len(fixed) == 1 and None not in fixed:
        return Even(int(fixed.pop() or 0) + extra, opened.index.size)
    what = f"ends of {name!r} as {dtype.str}"
    ends = kept.array(what, lambda: _Counter(opened, name, dtype).ends())
    if extra:
        ends = kept.array(f"{what} plus {extra}", lambda: ends + extra * np.arange(len(ends)))
    return Listed(ends)


def _fixed(schema: Schema, name: str, dtype: np.dtype[Any]) -> int | None:
    column = schema.column(name)
    if column is None or column.encoding.size is None:
        return None
    length = int(_vectors(column).lengths(np.array([column.encoding.size]), dtype)[0])
    if length < 0:
        raise ConfigError(f"column {name!r}, {column.spec!r}: tokens are one-dimensional arrays")
    return length


def _vectors(column: Column) -> VectorColumn:
    if not isinstance(column.encoding, VectorColumn):
        raise ConfigError(f"column {column.name!r}, {column.spec!r}, has no tokens")
    return column.encoding


class _Counter:
    """Counts, shard by shard."""

    def __init__(self, opened: OpenStream, name: str, dtype: np.dtype[Any]) -> None:
        self._opened, self._name, self._dtype = opened, name, dtype
        self._shards = opened.shards([name])

    def ends(self) -> Int64:
        """Return where documents begin, and the end of the last."""
        index = self._opened.index
        _LOG.info("%s: counting the tokens of %d shards", self._opened.where, len(index))
        ends = np.zeros(index.size + 1, np.int64)
        starts = index.starts.tolist()
        lengths = [ends[start + 1 : stop + 1] for start, stop in pairwise(starts)]
        silent: list[int] = []
        heads: list[Callable[[], object]] = [
            partial(self._look, shard, lengths[shard], silent) for shard in range(len(index))
        ]
        run_all(heads, _AT_ONCE)
        # Within a limit, several would only push one another out of the cache.
        at_once = 1 if self._opened.stream.cache_limit is not None else _READ_AT_ONCE
        run_all([partial(self._read, shard, lengths[shard]) for shard in sorted(silent)], at_once)
        return np.cumsum(ends, out=ends)

    def _look(self, shard: int, lengths: Int64, silent: list[int]) -> None:
        """Count from the head of a shard; one that does not tell is put among the `silent`."""
        if not len(lengths):
            return
        schema = self._opened.index.schema(shard)
        column = _column(self._opened, schema, self._name)
        sizes = self._sizes(shard, schema, column)
        if sizes is None:
            silent.append(shard)
            return
        lengths[:] = _vectors(column).lengths(sizes, self._dtype)
        if (lengths < 0).any():
            row = int((lengths < 0).argmax())
            raise CorruptShardError(
                f"{self._opened.where}: shard {shard}: sample {row}, column {self._name!r}: a value of "
                f"{sizes[row]} bytes is no array of {self._dtype.name} tokens"
            )

    def _sizes(self, shard: int, schema: Schema, column: Column) -> Int64 | None:
        """Return the sizes of the values of a shard, if its head tells."""
        info = self._opened.index.shard(shard)
        format_ = schema.format
        if not isinstance(format_, RangeReadableFormat) or schema.compression is not None:
            return None
        span = format_.header_range(info)
        if span is None:
            return None
        file = info.files[format_.header_role].raw
        [head] = self._opened.ranges.read(file, np.array([span], np.int64))
        try:
            return format_.open_header(info, head, schema.columns).sizes(column)
        except DataError as error:
            raise type(error)(f"{self._opened.where}: shard {shard}: {error}") from error

    def _read(self, shard: int, lengths: Int64) -> None:
        """Count by reading all documents of a shard."""
        column = _column(self._opened, self._opened.index.schema(shard), self._name)
        opened = self._shards.get(shard)
        for start in range(0, len(lengths), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(lengths)))
            try:
                (values,) = opened.reader.take(rows, [column])
                lengths[rows] = [
                    len(as_tokens(v, self._dtype)) for v in column.encoding.unbatch(values)
                ]
            except DataError as error:
                raise opened.located(error) from error


def as_tokens(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a decoded value as an array of tokens.

    Raises:
        DataError: If it is none.
    """
    if isinstance(value, (bytes, memoryview)) and len(value) % dtype.itemsize == 0:
        return np.frombuffer(value, dtype)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == dtype:
        return value
    what = f"{len(value)} bytes" if isinstance(value, bytes) else f"{value.dtype} {value.shape}"
    raise DataError(f"{what} where a one-dimensional array of {dtype.name} tokens was expected")
