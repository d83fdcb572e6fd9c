"""Columns of a writer, and the treatment of keys that are not columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from streamplug.errors import ConfigError
from streamplug.index import make_encoding
from streamplug.interfaces import Column, Format, WritableFormat
from streamplug.plugin import make

T = TypeVar("T")

EXTRA_KEYS = ("error", "ignore")
"""Policies for keys of a sample that are not columns."""


def make_columns(columns: Mapping[str, str] | None, format_: Format) -> list[Column]:
    """Validate columns and create their encodings, which a format may define itself."""
    if not isinstance(columns, Mapping):
        raise ConfigError(f"columns={columns!r:.80}: expected a mapping from names to encodings")
    if not columns:
        raise ConfigError("columns= is empty; name at least one column and its encoding")
    items: Mapping[Any, Any] = columns
    for name, spec in items.items():
        if not (isinstance(name, str) and isinstance(spec, str)):
            raise ConfigError(f"columns= maps names to encodings, got {name!r}: {spec!r}")
    return [
        Column(name, spec, make_encoding(name, spec, format_.encodings))
        for name, spec in columns.items()
    ]


def make_encoder(
    columns: Sequence[Column], encode: Callable[[Any], T], extra_keys: str
) -> Callable[[Any], T]:
    """Return `encode`, or an encoder that drops extra keys first if `extra_keys` is ``"ignore"``."""
    if extra_keys not in EXTRA_KEYS:
        raise ConfigError(f"extra_keys={extra_keys!r:.60}: choose one of {', '.join(EXTRA_KEYS)}")
    if extra_keys == "error":
        return encode
    names = [column.name for column in columns]

    def encode_columns(sample: Any) -> T:
        if type(sample) is dict and len(sample) == len(names):
            return encode(sample)  # the usual case; raises for missing keys
        if not hasattr(sample, "keys"):
            return encode(sample)  # raises: not a sample
        keys = sample.keys()
        return encode({name: sample[name] for name in names if name in keys})

    return encode_columns


def format_of(format_: object) -> WritableFormat:
    """Return a writable format from its name, or the format itself."""
    name = format_ if isinstance(format_, str) else type(format_).__name__
    if isinstance(format_, str):
        format_ = make("format", format_)
    if not isinstance(format_, Format):
        raise ConfigError(f"format={format_!r:.80}: expected the name of a format, or a format")
    if not isinstance(format_, WritableFormat):
        raise ConfigError(
            f"format {name} can only be read; name another one with format=, such as mds"
        )
    return format_
