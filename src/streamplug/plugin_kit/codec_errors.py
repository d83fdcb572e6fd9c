"""Errors of encodings and compressions."""

from __future__ import annotations

from streamplug.errors import DecompressError, EncodeTypeError


def wrong_type_error(encoding: str, expected: str, value: object) -> EncodeTypeError:
    """Return the error for a value of a type that an encoding does not accept."""
    return EncodeTypeError(
        f"{encoding} takes {expected}, got {type(value).__name__}: {value!r:.80}"
    )


def too_large_error(suffix: str, max_size: int) -> DecompressError:
    """Return the error for data that decompresses to more than `max_size` bytes."""
    return DecompressError(f"'{suffix}' data expands beyond the {max_size} bytes announced for it")


def damaged_error(suffix: str, reason: object) -> DecompressError:
    """Return the error for damaged or truncated data."""
    return DecompressError(f"'{suffix}' data is damaged: {reason}")
