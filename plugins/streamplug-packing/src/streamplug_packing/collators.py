"""Collators of sequences of tokens: padded, or one after the other for attention over varying lengths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.config import check_flags, is_integer, suggest_keywords, whole_number
from streamplug.errors import ConfigError
from streamplug.types import Int64
from streamplug_packing.sequences import TokenSequences, check_kind, read_sequences
from streamplug_packing.varlen import varlen_columns

_VARLEN_NAMES = {
    "pack": (["cu_seqlens"], ["max_seqlen"]),
    "flash_attn": (["cu_seqlens_q", "cu_seqlens_k"], ["max_seqlen_q", "max_seqlen_k"]),
    "transformers": (["cu_seq_lens_q", "cu_seq_lens_k"], ["max_length_q", "max_length_k"]),
}
"""Names of the offsets and of the largest size that functions and libraries take."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""Bounds of tokens and labels, which are int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCollator(ABC):
    """Makes batches for language models of samples, or of rows of tokens, with labels.

    It is a `batch_transform` of loaders, which gives it columns, and a `collate_fn`, which gives it samples.
    It takes samples with arrays of tokens, and rows of `TokenDataset` with the extra columns ``documents``
    and ``positions``. The batch has these columns of arrays, and all others as they are:

    - ``input_ids`` (int64), the tokens;
    - ``labels`` (int64): the tokens, or `labels`, and `ignore_index` where `loss_mask` is 0;
    - ``position_ids`` (int64), counted from 0 in each sequence;
    - the further columns, in their dtypes.

    Attributes:
        column: Name of the column of tokens.
        columns: Names of further columns with one number for each token. Rows of tokens need not name
            theirs.
        labels: Name of the column of labels; None for labels that are the tokens.
        loss_mask: Name of the column that is 0 for tokens that are not trained on; None for none.
        shift_labels: Whether a label is that of the next token of the sequence, as losses outside the model
            take it; else that of the token itself, as models of transformers do, which shift labels.
        ignore_index: Label of what is not trained on.
    """

    column: str = "input_ids"
    columns: Sequence[str] = ()
    labels: str | None = None
    loss_mask: str | None = None
    shift_labels: bool = False
    ignore_index: int = -100

    def __post_init__(self) -> None:
        columns: Any = self.columns  # unchecked so far
        is_list = isinstance(columns, Collection) and not isinstance(columns, (str, Mapping))
        if not (is_list and all(isinstance(name, str) for name in columns)):
            raise ConfigError(f"columns={columns!r:.80}: a list of names of columns")
        object.__setattr__(self, "columns", tuple(columns))
        for name in ("column", "labels", "loss_mask"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name == "column" or value is not None):
                raise ConfigError(f"{name}={value!r:.60}: the name of a column")
        check_flags(shift_labels=self.shift_labels)
        _check_label("ignore_index", self.ignore_index)

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return a batch of samples, or of columns.

        Raises:
            ConfigError: If a column is missing, or columns of the batch would have the same name.
            DataError: If a sample has no tokens, or another number of labels or other numbers than tokens.
        """
        named = [self.labels, self.loss_mask, *self.columns]
        further = [name for name in dict.fromkeys(named) if name not in (None, self.column)]
        sequences = read_sequences(batch, self.column, [str(name) for name in further])
        used = {self.column, self.labels, self.loss_mask} - set(self.columns)
        kept = {name: values for name, values in sequences.values.items() if name not in used}
        for name in (*kept, *sequences.rest):
            if name in ("input_ids", "labels", "position_ids", *self._own_names()):
                raise ConfigError(
                    f"column {name!r}: the batch has another column of that name; give column= or labels= "
                    "that name, or read the data set without the column"
                )
        columns = {
            "input_ids": sequences.values[self.column].astype(np.int64),
            "labels": self._labels(sequences),
            **varlen_columns(sequences.sizes),
        }
        return {**self._arrange(columns, kept, sequences), **sequences.rest}

    @abstractmethod
    def _own_names(self) -> Collection[str]:
        """Return the names of the columns that batches have beside those of sequences."""

    @abstractmethod
    def _arrange(
        self,
        columns: dict[str, Any],
        further: dict[str, NDArray[Any]],
        sequences: TokenSequences,
    ) -> dict[str, Any]:
        """Return the columns of the batch."""

    def _labels(self, sequences: TokenSequences) -> Int64:
        """Return the label of each token; `ignore_index` if another sequence would predict it."""
        values, ends = sequences.values, np.cumsum(sequences.sizes)
        column = self.labels or self.column
        check_kind(column, values[column], "labels are whole numbers", "biu")
        labels: Int64 = values[column].astype(np.int64)
        if self.loss_mask is not None:
            check_kind(self.loss_mask, values[self.loss_mask], "loss_mask= has numbers", "biuf")
            labels = np.where(values[self.loss_mask] != 0, labels, self.ignore_index)
        labels[ends - sequences.sizes] = self.ignore_index
        if self.shift_labels:
            labels = np.append(labels[1:], self.ignore_index)
        return labels


def _check_label(option: str, value: Any) -> None:
    if not is_integer(value) or not _LEAST <= value <= _MOST:
        raise ConfigError(f"{option}={value!r:.60}: must be a whole number of 64 bits")


def _check_padding(name: str, number: Any, dtype: np.dtype[Any]) -> None:
    """Raise `ConfigError` if a column has another number where it is filled up."""
    fits = True
    if dtype.kind == "b":
        fits = number in (0, 1)
    elif dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        fits = bool(bounds.min <= number <= bounds.max) and number == int(number)
    if not fits:
        raise ConfigError(
            f"column_padding: {number!r:.60} for column {name!r} is no {dtype.name}; give another number"
        )


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingCollator(SequenceCollator):
    """Batches of one row for each sequence, padded on the right to the longest.

    Arrays have the shape ``[sequences, length]``, and ``attention_mask`` (int64) is 1 for tokens. Rows of
    `TokenDataset` keep their length; each must be of one document, as of `TokenBlocks` with
    ``cross_documents=False``, because an attention mask of two dimensions does not separate documents.

    Attributes:
        padding: Token that fills rows up.
        column_padding: Number by further column that fills rows up; by default 0.
        multiple_of: Length of which rows have a multiple; None for that of the longest.
    """

    padding: int = 0
    column_padding: Mapping[str, float] = field(default_factory=dict, hash=False)
    multiple_of: int | None = None

    def __post_init__(self) -> None:
        SequenceCollator.__post_init__(self)
        _check_label("padding", self.padding)
        given: Any = self.column_padding
        if not (isinstance(given, Mapping) and all(isinstance(n, Real) for n in given.values())):
            raise ConfigError(f"column_padding={given!r:.80}: a mapping from columns to numbers")
        whole_number("multiple_of", self.multiple_of, 1)

    def _own_names(self) -> Collection[str]:
        return ["attention_mask"]

    def _arrange(
        self,
        columns: dict[str, Any],
        further: dict[str, NDArray[Any]],
        sequences: TokenSequences,
    ) -> dict[str, Any]:
        sizes, rows = sequences.sizes, sequences.rows
        several = np.flatnonzero(np.bincount(rows) > 1)
        if len(several):
            raise ConfigError(
                f"row {several[0]} of the batch has several documents, which an attention mask of two "
                "dimensions does not separate: give VarlenCollator, or TokenBlocks with "
                "cross_documents=False and remainder='pad'"
            )
        for name in self.column_padding:
            if name not in further:
                raise ConfigError(
                    f"column_padding: the batch has no further column {name!r}, only {sorted(further)}"
                )
        width = sequences.width
        if width is None:
            multiple = self.multiple_of or 1
            width = -(-columns["max_seqlen"] // multiple) * multiple
        is_token = np.arange(width) < sizes[:, None]
        padding: dict[str, float] = {
            "input_ids": self.padding,
            "labels": self.ignore_index,
            "position_ids": 0,
        }
        padding |= {name: self.column_padding.get(name, 0) for name in further}
        batch: dict[str, Any] = {}
        for name, number in padding.items():
            values = further[name] if name in further else columns[name]
            _check_padding(name, number, values.dtype)
            batch[name] = np.full(is_token.shape, number, values.dtype)
            batch[name][is_token] = values
        return {**batch, "attention_mask": is_token.astype(np.int64)}


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class VarlenCollator(SequenceCollator):
    """Batches of one row with all sequences, for attention over sequences of varying length.

    Padding of rows is left out. Arrays have the shape ``[1, tokens]``, or ``[tokens]``; the first label of
    each sequence is `ignore_index`, as no token of the sequence predicts it. The offsets of the sequences,
    and their total (int32, shape ``[sequences + 1]``), and the largest size have the names that `names`
    selects:

    - ``"transformers"``: ``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q`` and ``max_length_k``, as of
      its `DataCollatorWithFlattening`; arrays have the shape ``[1, tokens]``;
    - ``"flash_attn"``: ``cu_seqlens_q``, ``cu_seqlens_k``, ``max_seqlen_q`` and ``max_seqlen_k``, as of
      `flash_attn_varlen_func`; arrays have the shape ``[tokens]``;
    - ``"pack"``: ``cu_seqlens`` and ``max_seqlen``, as of packs; arrays have the shape ``[tokens]``.

    Attributes:
        names: Whose names the offsets and the largest size have.
    """

    names: str = "transformers"

    def __post_init__(self) -> None:
        SequenceCollator.__post_init__(self)
        if self.names not in _VARLEN_NAMES:
            raise ConfigError(f"names={self.names!r:.60}: choose one of {', '.join(_VARLEN_NAMES)}")

    def _own_names(self) -> Collection[str]:
        return [name for names in _VARLEN_NAMES[self.names] for name in names]

    def _arrange(
        self,
        columns: dict[str, Any],
        further: dict[str, NDArray[Any]],
        sequences: TokenSequences,
    ) -> dict[str, Any]:
        offsets, largest = _VARLEN_NAMES[self.names]
        arrays = {name: columns[name] for name in ("input_ids", "labels", "position_ids")} | further
        if self.names == "transformers":
            arrays = {name: values[None] for name, values in arrays.items()}
        return {
            **arrays,
            **dict.fromkeys(offsets, columns["cu_seqlens"]),
            **dict.fromkeys(largest, columns["max_seqlen"]),
        }
