"""Exceptions of streamplug; each also derives from the corresponding built-in one.

Every message gives the offending value, what was expected and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StreamplugError(Exception):
    """Base of all errors raised by streamplug."""


class ConfigError(StreamplugError, ValueError):
    """An argument, a config key or an environment variable is invalid."""


class UnknownKeywordError(ConfigError, TypeError):
    """A function or a constructor received an unknown keyword argument."""


# -- plugins ------------------------------------------------------------------


class PluginError(StreamplugError):
    """Base of errors about finding and loading plugins."""


class UnknownNameError(PluginError, LookupError):
    """No built-in, plugin or registration has the name."""


class AmbiguousNameError(PluginError, LookupError):
    """Several distributions provide the same name."""


class BrokenPluginError(PluginError, ImportError):
    """A plugin cannot be imported, or provides the wrong type."""


class NameTakenError(PluginError, ValueError):
    """A registration uses a name that is already in use."""


# -- storage ------------------------------------------------------------------


class StorageError(StreamplugError, OSError):
    """Base of errors about remote and local files; the message names the URL."""


class NotFound(StorageError, FileNotFoundError):
    """The object does not exist.

    Attributes:
        bucket: Name of the bucket or container, if that does not exist.
    """

    bucket: str = ""


class AlreadyExists(StorageError, FileExistsError):
    """The object to create exists."""


class AccessDenied(StorageError, PermissionError):
    """The credentials do not permit the operation.

    Attributes:
        may_be_missing: Whether the object may not exist: services deny what is missing without the right to
            list.
    """

    may_be_missing: bool = False


class Transient(StorageError, ConnectionError):
    """The operation failed with an error that is worth a retry.

    Attributes:
        retry_after: Minimum seconds until the retry, as requested by the server.
    """

    retry_after: float = 0.0


class ObjectReplaced(Transient):
    """The object was replaced between two requests for parts of it, which must not be mixed."""


# -- data ---------------------------------------------------------------------


class DataError(StreamplugError, ValueError):
    """Base of errors about invalid stored data.

    Attributes:
        is_as_indexed: Whether the data have the digest of the index, so that another copy would fail alike.
    """

    is_as_indexed: bool = False


class InvalidIndexError(DataError):
    """An index.json is damaged, malicious, or of an unknown version."""


class TruncatedIndexError(InvalidIndexError):
    """An index.json or a file list is not whole."""


class CorruptShardError(DataError):
    """A shard file contradicts the index."""


class HashMismatchError(CorruptShardError):
    """A file's digest differs from the one in the index."""


class DecompressError(DataError):
    """Compressed data is damaged, or larger than announced."""


class DecodeError(DataError):
    """A stored value cannot be decoded."""


class TooManyBadSamplesError(DataError):
    """More samples than `max_errors` could not be read, and were substituted."""


class UnsafeTypeError(StreamplugError, ValueError):
    """A column uses an encoding that can execute code, and this was not allowed."""


# -- writing ------------------------------------------------------------------


class EncodeError(StreamplugError, ValueError):
    """A value cannot be encoded."""


class EncodeTypeError(EncodeError, TypeError):
    """A value has the wrong type for its encoding."""


class WriterError(StreamplugError, ValueError):
    """A writer was used in a way that would produce a damaged or ambiguous data set."""


class OutputExistsError(WriterError, FileExistsError):
    """The output directory is not empty."""


# -- running ------------------------------------------------------------------


class StateError(StreamplugError, ValueError):
    """A saved state does not fit the data set."""


class CacheConflictError(StreamplugError, FileExistsError):
    """A local directory is already the cache of another data set."""


# -- messages -----------------------------------------------------------------


def add_note(error: BaseException, note: str) -> None:
    """Add a line to what Python shows of an error; does nothing before Python 3.11."""
    if hasattr(error, "add_note"):
        error.add_note(note)


def class_name(cls: type) -> str:
    """Return the name of a class with its module, as errors about plugins name it."""
    return f"{cls.__module__}.{cls.__qualname__}"


@contextmanager
def prefix_errors(place: str, kind: type[StreamplugError] = StreamplugError) -> Iterator[None]:
    """Prefix the messages of errors of a kind, such as with the URL of a data set.

    Other attributes, such as `Transient.retry_after`, are not kept.
    """
    try:
        yield
    except kind as error:
        raise type(error)(f"{place}: {error}") from error.__cause__ or error
