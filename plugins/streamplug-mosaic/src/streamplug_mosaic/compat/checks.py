"""Errors and warnings of mosaicml-streaming that programs catch or look for."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamplug.errors import (
    ConfigError,
    EncodeTypeError,
    InvalidIndexError,
    NotFound,
    TruncatedIndexError,
    UnknownNameError,
)

MIN_SHARDS_PER_CACHE = 4
"""Minimum cache limit, in shards of the largest size."""


class MissingIndexError(NotFound, RuntimeError):
    """There is no index."""


class EmptyStreamError(InvalidIndexError, RuntimeError):
    """An index has no samples."""


class DamagedIndexError(InvalidIndexError, json.JSONDecodeError):
    """An index is no JSON."""

    def __init__(self, message: str) -> None:
        json.JSONDecodeError.__init__(self, message, "", 0)


class ValueTypeError(EncodeTypeError, AttributeError):
    """A value has a type that its encoding does not take."""


class UnknownSpecError(UnknownNameError, TypeError, ValueError):
    """There is no such encoding or compression."""


class BatchCountError(ConfigError, TypeError):
    """The samples of a batch cannot be counted."""


class SampleIndexError(IndexError, ValueError):
    """A sample index is out of range, or is no integer."""


@contextmanager
def unknown_specs() -> Iterator[None]:
    """Raise errors of unknown encodings and compressions as subclasses of mosaicml-streaming's, too."""
    try:
        yield
    except UnknownNameError as error:
        raise UnknownSpecError(str(error)) from error


@contextmanager
def index_errors(url: str, *, is_local: bool) -> Iterator[None]:
    """Raise errors of an index as subclasses of those that mosaicml-streaming raises, too.

    Args:
        url: Directory of the index.
        is_local: Whether the stream has no remote.
    """
    try:
        yield
    except NotFound as error:
        missing = (
            "No `remote` provided, but local file" if is_local else "No such file or directory"
        )
        missing_index = MissingIndexError(f"{missing}: {error}")
        missing_index.bucket = error.bucket
        raise missing_index from error
    except InvalidIndexError as error:
        if type(error) not in {InvalidIndexError, TruncatedIndexError}:
            raise
        raise DamagedIndexError(f"Index file at {url} is empty or corrupted: {error}") from error


def check_cache_limit(limit: int, index_size: int, largest_size: int) -> None:
    """Refuse a cache limit below an index and a few shards.

    Args:
        limit: In bytes.
        index_size: Bytes of the index.
        largest_size: Bytes of the largest shard.

    Raises:
        ConfigError: If it is too low.
    """
    if limit <= index_size:
        raise ConfigError(
            f"Minimum cache usage, {index_size} bytes for the index, is larger than the cache limit: "
            f"cache_limit={limit}"
        )
    if limit < MIN_SHARDS_PER_CACHE * largest_size:
        raise ConfigError(
            f"Cache limit of {limit} bytes is too low. Increase the `cache_limit` to at least "
            f"{MIN_SHARDS_PER_CACHE * largest_size} bytes, {MIN_SHARDS_PER_CACHE} times the largest shard"
        )


def check_canonical_nodes(sizes: Mapping[str, int], canonical_nodes: int) -> None:
    """Refuse canonical nodes without samples, for which ``py1e`` of mosaicml-streaming has no order.

    Args:
        sizes: Number of samples of each sequence that is shuffled, by what they are samples of.
        canonical_nodes: Number of canonical nodes.

    Raises:
        ConfigError: If there are more canonical nodes than samples.
    """
    for what, size in sizes.items():
        if canonical_nodes > size:
            raise ConfigError(
                f"The number of samples assigned to a canonical node is 0: {size} samples of {what}, "
                f"num_canonical_nodes={canonical_nodes}; lower it"
            )


def check_overrides(cls: type, base: type, names: Sequence[str]) -> None:
    """Refuse a subclass of `base` that overrides methods which mosaicml-streaming calls, and `base` does not.

    Raises:
        ConfigError: If it does.
    """
    for name in names:
        if getattr(cls, name, None) is not getattr(base, name, None):
            raise ConfigError(
                f"{cls.__name__}.{name}: it would never be called; override get_item or __getitem__ of the "
                "data set to change samples, or write a plugin for a storage or a format"
            )


def check_batch_size(batch_size: int | None) -> int:
    """Return the batch size of a data set.

    Raises:
        ConfigError: If it has none.
    """
    if batch_size is None:
        raise ConfigError(
            "Please pass `batch_size` to StreamingDataset, the same as to the loader: the order of "
            "samples depends on it"
        )
    return batch_size


def warn(message: str) -> None:
    """Issue a `UserWarning` at the line that uses this package."""
    warnings.warn(message, UserWarning, stacklevel=4)


def check_block_size(block_size: Any, shard_sizes: Any) -> None:
    """Warn of a shuffle block that is smaller than a shard."""
    largest = max(map(int, shard_sizes), default=0)
    if isinstance(block_size, int) and block_size < largest:
        warn(
            f"Shuffle block size was smaller than shard size: {block_size} < {largest} samples; shards "
            "that large are hardly mixed with others. Raise shuffle_block_size="
        )
