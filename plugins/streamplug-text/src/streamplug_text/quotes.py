"""Parsing of CSV records with quoted values, compatible with Python's csv module."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from streamplug.errors import CorruptShardError
from streamplug.types import Bytes1D, Int64

_QUOTE, _NEWLINE, _RETURN = ord('"'), ord("\n"), ord("\r")


def record_ends(data: bytes, separator: bytes) -> Int64:
    """Return the ends of records, after their newlines; quoted newlines end none.

    Args:
        data: Starts with a record.
        separator: A single byte.
    """
    characters = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(characters == _NEWLINE)
    quotes = np.flatnonzero(characters == _QUOTE)
    if len(quotes):
        if not _regular(characters, quotes, ord(separator)):
            return _one_by_one(data, separator)
        # Newlines after an odd number of quotes are quoted.
        newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return newlines + 1


def _regular(data: Bytes1D, quotes: Int64, separator: int) -> bool:
    """Return whether all quotes start or end a value, or are escaped by doubling."""
    opening, closing = quotes[::2], quotes[1::2]
    before = data[opening - 1]
    begins = (before == separator) | (before == _NEWLINE) | (opening == 0)
    begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
    closing = closing[closing + 1 < len(data)]
    after = data[closing + 1]
    ends = (after == separator) | (after == _NEWLINE) | (after == _RETURN) | (after == _QUOTE)
    return bool(begins.all() and ends.all())


@lru_cache(maxsize=16)
def _record(separator: bytes) -> re.Pattern[bytes]:
    mark = re.escape(separator)
    rest = rb"[^%b\n]*" % mark
    value = rb'(?:"[^"]*(?:""[^"]*)*"(?!")%b|[^"%b\n]%b|)' % (rest, mark, rest)
    return re.compile(rb"%b(?:%b%b)*\n" % (value, mark, value))


def _one_by_one(data: bytes, separator: bytes) -> Int64:
    """Return the ends of records if quotes may also be plain characters."""
    match, at, ends = _record(separator).match, 0, list[int]()
    while record := match(data, at):
        at = record.end()
        ends.append(at)
    return np.array(ends, np.int64)


@lru_cache(maxsize=16)
def _value(separator: str) -> re.Pattern[str]:
    mark = re.escape(separator)
    return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"(?!"))?([^{mark}]*)({mark}|\Z)')


def values_of(text: str, separator: str) -> list[str]:
    """Return the values of one record, without its final newline.

    Raises:
        CorruptShardError: If a quote is not closed, or a newline is not quoted.
    """
    if '"' not in text:
        _check_unquoted(text)
        return text.split(separator)
    match, at, values = _value(separator).match, 0, list[str]()
    while True:
        field = match(text, at)
        if field is None or (field[1] is None and field[2].startswith('"')):
            raise CorruptShardError(
                f"column {len(values) + 1}: a quote is not closed: {text!r:.80}"
            )
        _check_unquoted(field[2])
        values.append((field[1] or "").replace('""', '"') + field[2])
        at = field.end()
        if not field[3]:
            return values


def _check_unquoted(text: str) -> None:
    if "\r" in text or "\n" in text:
        raise CorruptShardError(
            f"an end of line that is not in quotes, and ends no line: {text!r:.80}"
        )
