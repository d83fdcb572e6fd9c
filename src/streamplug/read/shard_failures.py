"""Errors of shards that could not be fetched or opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from streamplug.errors import DataError, StorageError, StreamplugError

_Errors = tuple[type[StreamplugError], ...]

SHARD_ERRORS: _Errors = (DataError, StorageError)


class ShardFailures:
    """Errors of the shards of one stream, raised again without another attempt; nothing at first."""

    def __init__(self) -> None:
        self._errors: dict[int, StreamplugError] | None = None

    def remember(self) -> None:
        """Forget all errors, and remember those to come."""
        self._errors = {}

    @property
    def enabled(self) -> bool:
        """Whether errors are remembered."""
        return self._errors is not None

    def __contains__(self, shard: int) -> bool:
        return shard in (self._errors or {})

    @contextmanager
    def guard(self, shard: int, kinds: _Errors = SHARD_ERRORS) -> Iterator[None]:
        """Raise the remembered error of a shard, or remember one of these kinds that the block raises."""
        errors = self._errors
        if errors is None:
            yield
            return
        if shard in errors:
            raise copy(errors[shard])  # the error itself would collect tracebacks
        try:
            yield
        except kinds as error:
            errors[shard] = copy(error)
            raise
