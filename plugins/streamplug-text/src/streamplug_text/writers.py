"""Writers of data sets, one for each format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from streamplug import Writer
from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError
from streamplug_text.jsonl import JSONL
from streamplug_text.xsv import CSV, TSV, XSV

Columns = Mapping[str, str]
Out = str | Path | tuple[str | Path, str]


@suggest_keywords
class JSONLWriter(Writer):
    r"""A `Writer` of shards that have a JSON object per line.

    Args:
        columns: Encoding of each column by its name: ``"str"``, ``"int"`` or ``"float"``.
        out: A local path, a URL, or a pair (local path, URL).
        newline: What ends a line: white space.
        kwargs: The other arguments of `Writer`.

    Raises:
        ConfigError: If an argument has no meaning.
        OutputExistsError: As for `Writer`.
    """

    def __init__(self, *, columns: Columns, out: Out, newline: str = "\n", **kwargs: Any) -> None:
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=JSONL(newline), **kwargs)


JSONWriter = JSONLWriter
"""The name that mosaicml-streaming has for `JSONLWriter`."""


@suggest_keywords
class XSVWriter(Writer):
    r"""A `Writer` of shards that have values between separators, a sample per line; nothing is quoted.

    Args:
        columns: Encoding of each column by its name: ``"str"``, ``"int"`` or ``"float"``.
        out: A local path, a URL, or a pair (local path, URL).
        separator: What stands between two values.
        newline: What ends a line.
        kwargs: The other arguments of `Writer`.

    Raises:
        ConfigError: If an argument has no meaning.
        OutputExistsError: As for `Writer`.
    """

    def __init__(
        self, *, columns: Columns, out: Out, separator: str, newline: str = "\n", **kwargs: Any
    ) -> None:
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=XSV(separator, newline), **kwargs)


@suggest_keywords
class CSVWriter(Writer):
    r"""An `XSVWriter` whose separator is a comma."""

    _kind: ClassVar[type[CSV]] = CSV

    def __init__(self, *, columns: Columns, out: Out, newline: str = "\n", **kwargs: Any) -> None:
        """Take the arguments of `XSVWriter`, but for `separator`."""
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=self._kind(newline), **kwargs)


class TSVWriter(CSVWriter):
    r"""An `XSVWriter` whose separator is a tab."""

    _kind = TSV


def _check(writer: Writer, kwargs: Mapping[str, Any]) -> None:
    if "format" in kwargs:
        raise ConfigError(
            f"{type(writer).__name__} writes one format; use Writer(format=…) for another"
        )
