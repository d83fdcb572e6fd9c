"""Errors of encodings, compressions and parsers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamplug.errors import (
    DataError,
    DecodeError,
    DecompressError,
    EncodeTypeError,
    StreamplugError,
    class_name,
)


def wrong_type_error(encoding: str, expected: str, value: object) -> EncodeTypeError:
    """Return the error for a value of a type that an encoding does not accept."""
    return EncodeTypeError(
        f"{encoding} takes {expected}, got {type(value).__name__}: {short_repr(value)}"
    )


def short_repr(value: object) -> str:
    """Return the beginning of the repr of a value of a user, for an error."""
    try:
        return f"{value!r:.80}"
    except Exception as error:  # noqa: BLE001 - integers beyond 4,300 digits, and any class of a user
        return f"a value without a repr ({type(error).__name__})"


def describe_start(data: bytes | memoryview) -> str:
    """Return how data begins that is not what it should be, in words, for an error."""
    return f"it begins with {bytes(data[:8])!r}" if len(data) else "it is empty"


def too_large_error(suffix: str, max_size: int) -> DecompressError:
    """Return the error for data that decompresses to more than `max_size` bytes."""
    return DecompressError(f"'{suffix}' data expands beyond the {max_size} bytes announced for it")


def large_value_error(what: str, max_value_bytes: int) -> DecodeError:
    """Return the error for a value that takes more than `max_value_bytes` when it is decoded."""
    return DecodeError(
        f"{what} takes more than max_value_bytes={max_value_bytes} when decoded; raise max_value_bytes= of "
        "the stream if you trust its writer"
    )


def damaged_error(suffix: str, reason: object) -> DecompressError:
    """Return the error for damaged or truncated data."""
    return DecompressError(f"'{suffix}' data is damaged: {reason}")


@contextmanager
def naming_codec(codec: object) -> Iterator[None]:
    """Raise DecompressError, which names the class of a codec, for what it lets through of its library.

    Errors of the operating system are left: they are of the files.
    """
    try:
        yield
    except (StreamplugError, OSError, MemoryError):
        raise
    except Exception as error:
        raise DecompressError(
            f"{class_name(type(codec))} raised {type(error).__name__}: {error}"
        ) from error


@contextmanager
def parsing(what: str, advice: str = "") -> Iterator[None]:
    """Raise DataError, which says that `what` is damaged, for the exceptions of a parser of untrusted data.

    For libraries that raise what they run into: their own errors, but IndexError or SystemError, too. Of an
    error of the operating system, it says that `what` cannot be read. The error ends with the `advice`.
    """
    try:
        yield
    except StreamplugError:
        raise
    except Exception as error:
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        # gzip and pyarrow raise OSError for damage, too, but without a number.
        of_system = isinstance(error, OSError) and error.errno is not None
        message = f"{what} {'cannot be read' if of_system else 'is damaged'}: {reason}"
        raise DataError("; ".join(filter(None, [message, advice]))) from error
