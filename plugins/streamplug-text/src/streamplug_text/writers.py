"""Data set writers for the text formats."""

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
    r"""A `Writer` of shards with a JSON object per line.

    Args:
        columns: Encoding by column name: ``"str"``, ``"int"`` or ``"float"``.
        out: A local path, a URL, or a pair (local path, URL).
        newline: Line terminator, of JSON whitespace. An empty one writes all samples of a shard in one line,
            which only readers of the index can split.
        kwargs: Further arguments of `Writer`.

    Raises:
        ConfigError: If an argument is invalid.
        OutputExistsError: As for `Writer`.
    """

    def __init__(self, *, columns: Columns, out: Out, newline: str = "\n", **kwargs: Any) -> None:
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=JSONL(newline), **kwargs)


JSONWriter = JSONLWriter
"""`JSONLWriter` under mosaicml-streaming's name."""


@suggest_keywords
class XSVWriter(Writer):
    r"""A `Writer` of shards with separated values, a sample per line, without quoting.

    Args:
        columns: Encoding by column name: ``"str"``, ``"int"`` or ``"float"``.
        out: A local path, a URL, or a pair (local path, URL).
        separator: Separator of values.
        newline: Line terminator.
        kwargs: Further arguments of `Writer`.

    Raises:
        ConfigError: If an argument is invalid.
        OutputExistsError: As for `Writer`.
    """

    def __init__(
        self, *, columns: Columns, out: Out, separator: str, newline: str = "\n", **kwargs: Any
    ) -> None:
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=XSV(separator, newline), **kwargs)


@suggest_keywords
class CSVWriter(Writer):
    r"""An `XSVWriter` with a comma as the separator."""

    _kind: ClassVar[type[CSV]] = CSV

    def __init__(self, *, columns: Columns, out: Out, newline: str = "\n", **kwargs: Any) -> None:
        """Set the arguments of `XSVWriter`, without `separator`."""
        _check(self, kwargs)
        super().__init__(columns=columns, out=out, format=self._kind(newline), **kwargs)


class TSVWriter(CSVWriter):
    r"""An `XSVWriter` with a tab as the separator."""

    _kind = TSV


def _check(writer: Writer, kwargs: Mapping[str, Any]) -> None:
    if "format" in kwargs:
        raise ConfigError(
            f"{type(writer).__name__} writes one format; use Writer(format=…) for another"
        )
