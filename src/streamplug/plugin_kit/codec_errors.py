"""Errors of encodings and compressions."""

from __future__ import annotations

from streamplug.errors import DecodeError, DecompressError, EncodeTypeError


def wrong_type_error(encoding: str, expected: str, value: object) -> EncodeTypeError:
    """Return the error for a value of a type that an encoding does not accept."""
    return EncodeTypeError(
        f"{encoding} takes {expected}, got {type(value).__name__}: {value!r:.80}"
    )


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
