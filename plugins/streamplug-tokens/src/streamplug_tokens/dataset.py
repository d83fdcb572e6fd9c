"""TokenDataset: a StreamingDataset whose samples are rows of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from xxhash import xxh64

from streamplug.config import suggest_keywords
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.index import shards_digest
from streamplug.plan import DatasetFingerprint
from streamplug.read import Reader, SampleReader
from streamplug.session.open_stream import OpenStream
from streamplug_tokens.count import dtype_of, ends_of
from streamplug_tokens.ends import Ends
from streamplug_tokens.kept import Kept
from streamplug_tokens.reader import RowPiece, TokenReader
from streamplug_tokens.rows import Across, Packed, Rows, Within
from streamplug_tokens.views import TokenBlocks, TokenPacks, view_from_state


@suggest_keywords
class TokenDataset(StreamingDataset):
    """Rows of tokens of one length, made of the documents of a data set while it is read.

    A row is what a sample is elsewhere: rows are shuffled, mixed, dealt to ranks, counted by `batch_size`
    and by states, and explained. Each is a dict of arrays of shape ``[length]``, each batch one of shape
    ``[batch, length]``: the tokens by the name of their column, and the extras of the view by theirs.

    When it is made, the tokens of each document are counted, once for a cache: of the shards' heads where
    these tell, else by reading all of them.

    Args:
        tokens: How documents become rows.
        **kwargs: As for `StreamingDataset`, but `columns`.

    Raises:
        StreamplugError: If an argument has no meaning, or the tokens cannot be counted.
    """

    def __init__(self, *, tokens: TokenBlocks | TokenPacks, **kwargs: Any) -> None:
        if not isinstance(tokens, TokenBlocks | TokenPacks):
            raise ConfigError(f"tokens={tokens!r}: expected TokenBlocks(...) or TokenPacks(...)")
        if kwargs.get("columns") is not None:
            raise ConfigError(
                f"columns={kwargs['columns']!r}: rows are of the column {tokens.column!r}"
            )
        self.tokens = tokens
        super().__init__(**{**kwargs, "columns": [tokens.column]})

    @classmethod
    def from_state_view(cls, view: Any, **kwargs: Any) -> TokenDataset:
        """Return a data set with the rows of a run, as its state describes them.

        Args:
            view: What the state has under ``tokens``.
            **kwargs: As for the class.

        Raises:
            StateError: If it describes no rows of tokens.
        """
        return cls(tokens=view_from_state(view), **kwargs)

    def make_reader(
        self, opened: Sequence[OpenStream], columns: Sequence[str] | None
    ) -> SampleReader:
        """Return what reads rows of the documents of some streams."""
        view = self.tokens
        dtypes = [dtype_of(stream, view.column, view.dtype) for stream in opened]
        if len(set(dtypes)) > 1:
            names = [dtype.name for dtype in dtypes]
            raise ConfigError(
                f"the streams have tokens of different dtypes, {names}: write them alike"
            )
        view.check(dtypes[0])
        ends, rows = [], []
        for stream, dtype in zip(opened, dtypes):
            kept, extra = Kept(stream), int(view.separator is not None)
            ends.append(ends_of(stream, kept, view.column, dtype, extra))
            rows.append(_rows(view, ends[-1], kept, f"{view.column!r} {dtype.str} {extra}"))
        # After the counting, which opens shards of its own.
        documents = Reader(
            [stream.index.starts for stream in opened],
            [stream.shards(columns) for stream in opened],
        )
        return TokenReader(documents, view, dtypes[0], rows, ends)

    def pieces(self, row: int) -> list[RowPiece]:
        """Return which parts of which documents make up a row, from the left on, without reading them.

        Args:
            row: Which row of the data set, from 0: what `explain` calls a sample.

        Raises:
            ConfigError: If there is no such row.
        """
        if not 0 <= row < self.size:
            raise ConfigError(f"row={row}: there are the rows 0 to {self.size - 1}")
        return cast(TokenReader, self.session.reader).pieces(row)

    def make_fingerprint(self, opened: Sequence[OpenStream]) -> DatasetFingerprint:
        """Return what tells these rows from others in states."""
        documents = super().make_fingerprint(opened)
        rows = shards_digest(self._reader.starts)
        digest = xxh64(f"{documents.digest} {rows} {self.tokens!r}".encode()).hexdigest()
        view = asdict(self.tokens)
        view["extras"] = list(self.tokens.extras)  # as it comes back from JSON
        return documents.with_tokens(digest, {"view": type(self.tokens).__name__, **view})


def _rows(view: TokenBlocks | TokenPacks, ends: Ends, kept: Kept, what: str) -> Rows:
    if isinstance(view, TokenPacks):
        return Packed(ends, view, kept, what)
    return Across(ends, view) if view.across else Within(ends, view, kept, what)
