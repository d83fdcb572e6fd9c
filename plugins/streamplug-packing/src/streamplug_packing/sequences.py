"""Sequences of tokens in a batch: of samples, of their columns, or of rows that have several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DataError
from streamplug.types import Int64

ROW_COLUMNS = ("targets", "documents", "positions", "mask")
"""Extra columns of rows of tokens, which describe the sequences in them."""


class TokenSequences(NamedTuple):
    """The sequences of a batch, one after the other.

    Attributes:
        sizes: Tokens of each sequence, at least 1, shape ``[sequences]``.
        values: Numbers of each column for all tokens, shape ``[sum of sizes]``.
        rest: Other columns of the batch.
        width: Tokens of a row with its padding, if the batch has rows of tokens, else None.
        rows: Row of each sequence, if the batch has rows of tokens, else the number of its sample.
    """

    sizes: Int64
    values: dict[str, NDArray[Any]]
    rest: dict[str, Any]
    width: int | None
    rows: Int64


def read_sequences(batch: Any, column: str, columns: Sequence[str]) -> TokenSequences:
    """Return the sequences of a batch.

    Args:
        batch: Columns of samples by name, or a list of samples; or columns of rows of tokens, with the extra
            columns ``documents`` and ``positions``.
        column: Name of the column of tokens.
        columns: Names of further columns with one number for each token. Those of rows of tokens all have.

    Raises:
        ConfigError: If a column is missing, or rows of tokens lack one of the extra columns.
        DataError: If a value is not one-dimensional, or has another length than its tokens; if there are no
            tokens in a sample, or they are no whole numbers.
    """
    table = _table(batch)
    for name in (column, *columns):
        if name not in table:
            raise ConfigError(
                f"a batch has no column {name!r}, only {list(table)!r:.200}: read it by columns= of the data "
                "set or of its rows of tokens, or name another one"
            )
    described = [
        name in table and _has_rows(table[name]) and _has_rows(table[column])
        for name in ("documents", "positions")
    ]
    if any(described):
        if not all(described):
            raise ConfigError(
                "rows of tokens say where their documents begin by two extra columns: have "
                "extras=['documents', 'positions'] of their options"
            )
        return _read_rows(table, column, columns)
    return _read_samples(table, column, columns)


def _table(batch: Any) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    samples = list(batch)
    for sample in samples:
        if not isinstance(sample, Mapping) or sample.keys() != samples[0].keys():
            shown = list(sample) if isinstance(sample, Mapping) else type(sample).__name__
            raise ConfigError(
                f"samples of a batch must be dicts of the same columns, not {shown!r:.200}"
            )
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def _has_rows(values: Any) -> bool:
    """Return whether the values of a column are arrays of one dimension and one length."""
    if hasattr(values, "ndim"):
        return bool(values.ndim == 2)
    shapes = {np.shape(value) for value in values}
    return len(shapes) == 1 and len(shapes.pop()) == 1


def _read_rows(table: dict[str, Any], column: str, columns: Sequence[str]) -> TokenSequences:
    documents = np.asarray(table["documents"])
    is_token = documents >= 0
    begins = is_token & (np.asarray(table["positions"]) == 0)
    values = {}
    for name, of_rows in table.items():
        if name in ROW_COLUMNS and name not in columns:
            continue
        array = np.asarray(of_rows)
        if array.shape != documents.shape:
            raise ConfigError(
                f"column {name!r} has the shape {list(array.shape)}, rows of tokens have "
                f"{list(documents.shape)}"
            )
        values[name] = array[is_token]
    check_kind(column, values[column], "tokens are whole numbers")
    starts = np.flatnonzero(begins[is_token])
    sizes = np.diff(starts, append=int(is_token.sum()))
    return TokenSequences(sizes, values, {}, documents.shape[1], np.nonzero(begins)[0])


def _read_samples(table: dict[str, Any], column: str, columns: Sequence[str]) -> TokenSequences:
    names = (column, *columns)
    arrays = {name: [np.asarray(value) for value in table[name]] for name in names}
    for name, of_samples in arrays.items():
        for number, (array, tokens) in enumerate(zip(of_samples, arrays[column])):
            _check_sample(f"sample {number} of the batch, column {name!r}", array, tokens, column)
    rest = {name: values for name, values in table.items() if name not in names}
    sizes = np.array([len(tokens) for tokens in arrays[column]], np.int64)
    values = {name: np.concatenate(of_samples) for name, of_samples in arrays.items()}
    check_kind(column, values[column], "tokens are whole numbers")
    return TokenSequences(sizes, values, rest, None, np.arange(len(sizes)))


def _check_sample(
    where: str, array: NDArray[Any], tokens: NDArray[Any], tokens_column: str
) -> None:
    if array.ndim != 1:
        raise DataError(
            f"{where}: {array.dtype} {array.shape} where a one-dimensional array with one number for each "
            "token was expected"
        )
    if tokens.ndim == 1 and len(array) != len(tokens):
        raise DataError(
            f"{where}: {len(array)} numbers for the {len(tokens)} tokens in column {tokens_column!r}; write "
            "one for each token"
        )
    if not len(array):
        raise DataError(
            f"{where}: no tokens; leave such samples out by select= of the data set, or do not write them"
        )


def check_kind(column: str, numbers: NDArray[Any], rule: str, kinds: str = "iu") -> None:
    """Raise `DataError` if the dtype of a column has another kind, see `numpy.dtype.kind`."""
    if numbers.dtype.kind not in kinds:
        raise DataError(f"column {column!r}: {rule}, not {numbers.dtype}")
