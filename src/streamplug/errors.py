"""The exceptions that streamplug raises; each also derives from the natural built-in one.

Every message names the value at fault, says what was expected and what to do about it.
"""

from __future__ import annotations


class StreamplugError(Exception):
    """Base of all errors raised by streamplug."""


class ConfigError(StreamplugError, ValueError):
    """An argument, a config key or an environment variable has no valid meaning."""


class UnknownKeywordError(ConfigError, TypeError):
    """A constructor was given a keyword argument that it does not have."""


# -- plugins ------------------------------------------------------------------


class PluginError(StreamplugError):
    """Base of errors about finding and loading plugins."""


class UnknownNameError(PluginError, LookupError):
    """No built-in, plugin or registration answers to a name."""


class AmbiguousNameError(PluginError, LookupError):
    """Several distributions provide the same name."""


class BrokenPluginError(PluginError, ImportError):
    """A plugin that provides a name cannot be imported, or provides the wrong thing."""


class NameTakenError(PluginError, ValueError):
    """A registration asks for a name that is already in use."""


# -- storage ------------------------------------------------------------------


class StorageError(StreamplugError, OSError):
    """Base of errors about remote and local files; the message names the URL."""


class NotFound(StorageError, FileNotFoundError):
    """The object does not exist.

    Attributes:
        bucket: Name of the bucket or container, if that does not exist.
    """

    bucket: str = ""


class AccessDenied(StorageError, PermissionError):
    """The credentials in use do not allow the operation."""


class Transient(StorageError, ConnectionError):
    """The operation failed in a way that may pass: it is worth retrying.

    Attributes:
        retry_after: Seconds before which the server does not want to be asked again.
    """

    retry_after: float = 0.0


# -- data ---------------------------------------------------------------------


class DataError(StreamplugError, ValueError):
    """Base of errors about stored data that is damaged or not what it claims to be."""


class InvalidIndexError(DataError):
    """An index.json cannot be used: damaged, hostile, or of an unknown version."""


class CorruptShardError(DataError):
    """A shard file is not what the index says."""


class HashMismatchError(CorruptShardError):
    """A file's digest differs from the one in the index."""


class DecompressError(DataError):
    """Compressed data is damaged, or expands beyond the size that was announced."""


class DecodeError(DataError):
    """Stored bytes of a value cannot be decoded."""


class UnsafeTypeError(StreamplugError, ValueError):
    """A column uses an encoding that can run code, and this was not allowed."""


# -- writing ------------------------------------------------------------------


class EncodeError(StreamplugError, ValueError):
    """A value cannot be encoded."""


class EncodeTypeError(EncodeError, TypeError):
    """A value has the wrong type for its encoding."""


class WriterError(StreamplugError, ValueError):
    """A writer was used in a way that would give a damaged or ambiguous data set."""


class OutputExistsError(WriterError, FileExistsError):
    """The output directory already holds something."""


# -- running ------------------------------------------------------------------


class StateError(StreamplugError, ValueError):
    """A saved state does not fit the data set that should load it."""


class CacheConflictError(StreamplugError, FileExistsError):
    """A local directory already serves as the cache of another data set."""
