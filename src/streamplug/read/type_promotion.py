"""Type promotion of numbers of streams that store a column with different dtypes to one dtype."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DataError
from streamplug.index import Index
from streamplug.interfaces import Encoding, VectorColumn
from streamplug.read.sample_reader import SampleReader, WrappedReader
from streamplug.types import ColumnValues, Int64, Sample

_LOG = logging.getLogger("streamplug")
_MAX_EXACT_INTEGER = 1 << 53
"""Largest integer up to which each has a float64 of its own."""


class PromotedReader(WrappedReader):
    """Reader whose numbers have one dtype in all streams; the attributes are those of `SampleReader`."""

    def __init__(self, reader: SampleReader, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        """Read from `reader`, and convert the numbers of some columns; `dtypes` are by column."""
        super().__init__(reader)
        self._dtypes, self.starts = dtypes, reader.starts
        self.needs, self.locate, self.describe = reader.needs, reader.locate, reader.describe

    def row(self, sample_id: int) -> Sample:
        return self._promote_sample(sample_id, self._reader.row(sample_id))

    def rows(self, ids: Int64) -> list[Sample]:
        return list(map(self._promote_sample, ids.tolist(), self._reader.rows(ids)))

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        return self._promote_batch(ids, self._reader.batch(ids))

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        of_parts = map(ids.__getitem__, parts)
        return map(self._promote_batch, of_parts, self._reader.batches(ids, parts))

    def _promote_sample(self, sample_id: int, sample: Sample) -> Sample:
        for name in self._dtypes.keys() & sample.keys():
            try:
                sample[name] = _promote_value(sample[name], self._dtypes[name])
            except DataError as error:
                where = f"{self.describe(sample_id)}, column {name!r}"
                raise DataError(f"{where}: {error}") from None
        return sample

    def _promote_batch(self, ids: Int64, batch: dict[str, ColumnValues]) -> dict[str, ColumnValues]:
        for name in self._dtypes.keys() & batch.keys():
            try:
                batch[name] = _promote_values(batch[name], self._dtypes[name])
            except DataError:
                self.rows(ids)  # names the sample
                raise
        return batch


def _promote_values(values: ColumnValues, dtype: np.dtype[Any]) -> ColumnValues:
    if isinstance(values, np.ndarray):
        return _cast(values, dtype, is_weak=False)
    promoted = [_promote_value(value, dtype) for value in values]
    shapes = {getattr(value, "shape", None) for value in promoted}
    return np.stack(promoted) if len(shapes) == 1 and None not in shapes else promoted


def _promote_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None:
        return None
    is_weak = not isinstance(value, (np.ndarray, np.generic))
    return _cast(np.asarray(value), dtype, is_weak=is_weak)[()]


def _cast(values: NDArray[Any], dtype: np.dtype[Any], *, is_weak: bool) -> NDArray[Any]:
    """Cast values to a dtype that holds them; numbers of Python are weak, and take any that does."""
    kinds = "buif" if dtype.kind in "fc" else "bui"
    is_kept: NDArray[np.bool_] = np.zeros(values.shape, np.bool_)
    if values.dtype.kind in kinds if is_weak else np.can_cast(values.dtype, dtype, "safe"):
        with np.errstate(over="ignore"):
            cast = values.astype(dtype, copy=False)
        is_kept = _is_kept(values, cast)
        if is_kept.all():
            return cast
    elif not values.size:  # whatever dtype NumPy gives an empty list
        return values.astype(dtype)
    what = "values of Python" if is_weak else str(values.dtype)
    raise DataError(
        f"{what}, such as {values[~is_kept][:1].tolist()!r:.80}, are not of {dtype}, which the numbers of "
        "other streams have; read other columns, with columns=, or give the streams decoders="
    )


def _is_kept(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values a cast has kept; floats are rounded."""
    if cast.dtype.kind in "mM":  # NumPy lets the year 3000 in nanoseconds overflow
        return np.asarray(np.isnat(values) | (cast.astype(values.dtype) == values))
    if cast.dtype.kind not in "fc":
        return np.asarray(cast == values)
    is_kept = np.asarray(np.isfinite(cast) | ~np.isfinite(values))
    if values.dtype.kind in "iu":  # larger ones may be identifiers, and several of them one float
        is_kept &= (values >= -_MAX_EXACT_INTEGER) & (values <= _MAX_EXACT_INTEGER)
    return is_kept


def promote_numbers(
    reader: SampleReader, indexes: Sequence[Index], columns: Sequence[str] | None
) -> SampleReader:
    """Return a reader in whose columns all numbers have one dtype, by `numpy.result_type`.

    Numbers of encodings that do not know their dtype, such as ``json``, take that of the other streams.

    Args:
        reader: Reader of the streams.
        indexes: Their indexes.
        columns: Columns that it reads; None for all.

    Raises:
        ConfigError: If a column has numbers in some streams, and arrays or text in others.
    """
    stored: dict[str, dict[NumberType, str]] = {}
    for index in indexes if len(indexes) > 1 else ():
        for column in (column for schema in index.schemas for column in schema.columns):
            if columns is None or column.name in columns:
                where = f"{column.spec!r} in {index.where}"
                stored.setdefault(column.name, {}).setdefault(NumberType.of(column.encoding), where)
    dtypes = {}
    for name, types in stored.items():
        dtype = _common_dtype(name, types) if len(types) > 1 else None
        if dtype is not None:
            dtypes[name] = dtype
    if not dtypes:
        return reader
    return PromotedReader(reader, dtypes)


class NumberType(NamedTuple):
    """Type of the values of a column in a stream; unlike types make batches of unlike dtype."""

    dtype: np.dtype[Any] | None  # None if it is not known
    are_arrays: bool
    in_arrays: bool  # whether batches are always arrays

    @classmethod
    def of(cls, encoding: Encoding) -> NumberType:
        """Return the type of the decoded values of an encoding."""
        dtype = encoding.item if encoding.dtype is None else encoding.dtype
        if dtype is None:
            return cls(None, False, False)
        are_arrays = bool(dtype.shape) or isinstance(encoding, VectorColumn)
        return cls(dtype.base.newbyteorder("="), are_arrays, encoding.dtype is not None)


def _common_dtype(name: str, types: Mapping[NumberType, str]) -> np.dtype[Any] | None:
    """Return the dtype of the numbers of a column with several types; None if it has none."""
    known = {(number.dtype, number.are_arrays): where for number, where in types.items()}
    kinds = {
        (are_arrays, "number" if dtype.kind in "biufc" else dtype.kind): where
        for (dtype, are_arrays), where in known.items()
        if dtype is not None
    }
    if len(kinds) > 1:
        raise ConfigError(
            f"column {name!r} is {' and '.join(kinds.values())}: batches would change their type from step "
            "to step; read other columns, with columns=, give the streams decoders=, or write one of them "
            "anew (streamplug convert)"
        )
    dtypes = {dtype for dtype, _ in known if dtype is not None}
    if not dtypes or {dtype.kind for dtype in dtypes} == {"U"}:
        return None
    common = np.result_type(*dtypes)
    _LOG.warning(
        "column %r is %s: all of its numbers become %s", name, " and ".join(types.values()), common
    )
    return common
