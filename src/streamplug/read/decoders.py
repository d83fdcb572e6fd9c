"""A stream's `decoders=` and value limits, put in place of the encodings of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from streamplug.config import check_names
from streamplug.errors import ConfigError, prefix_errors
from streamplug.index import Index
from streamplug.interfaces import Column, Decoder, Encoding


def apply_decoders(index: Index, decoders: Mapping[str, Decoder] | None) -> Index:
    """Return an index whose columns use these decoders, by column name."""
    if not decoders or not index.schemas:  # a data set without samples has no columns
        return index
    names = {column.name for schema in index.schemas for column in schema.columns}
    check_names(f"decoders={list(decoders)}", index.where, decoders, names)
    return _with_columns(
        index,
        lambda column: _decoded(column, decoders.get(column.name), index.where),
        decoders=dict(decoders),
    )


def limit_values(index: Index, max_value_bytes: int | None) -> Index:
    """Return an index whose columns decode values of at most this many bytes; None is the default."""
    if max_value_bytes is None:
        return index
    return _with_columns(
        index, lambda c: replace(c, encoding=c.encoding.with_max_value_bytes(max_value_bytes))
    )


def _with_columns(index: Index, change: Callable[[Column], Column], **options: Any) -> Index:
    changed = copy(index)
    changed.schemas = tuple(
        replace(schema, columns=tuple([change(column) for column in schema.columns]), **options)
        for schema in index.schemas
    )
    return changed


def _decoded(column: Column, decoder: Decoder | None, where: str) -> Column:
    if decoder is None:
        return column
    what = f"{where}: column {column.name!r} ({column.spec}) with decoders={{{column.name!r}: …}}"
    if not callable(decoder):
        raise ConfigError(f"{what}: expected a decoder, got {type(decoder).__name__}")
    with prefix_errors(what, ConfigError):
        encoding = decoder(column.encoding)
    if not isinstance(encoding, Encoding):
        raise ConfigError(f"{what}: the decoder gave {type(encoding).__name__}, not an encoding")
    if encoding.size != column.encoding.size:
        raise ConfigError(
            f"{what}: the decoder takes values of {encoding.size} bytes, but the stored "
            f"values have {column.encoding.size}"
        )
    return replace(column, encoding=encoding)
