"""Mapping of the columns of a data set to those of a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError, StreamplugError
from streamplug.index import make_encoding
from streamplug.interfaces import Column, Format, WriteSettings
from streamplug.plugin import is_known, list_names, make, split_spec
from streamplug.write import format_of
from streamplug_tools.array_values import array_specs
from streamplug_tools.raw_values import same_encoding
from streamplug_tools.time_values import encoding_choices, is_converted_alike, is_temporal

_SYNONYMS = {
    "binary": ("bytes",),
    "bytes": ("binary",),
    "str": ("string",),
    "string": ("str",),
}
"""Encodings of other names in other formats."""
_TEXT_NUMBERS = {name: np.dtype("f8") for name in ("float", "str_float")} | {
    name: np.dtype("i8") for name in ("int", "str_int")
}
"""Types of numbers in text formats."""
_NUMBER_NAMES = {"f": "float", "i": "int", "u": "int"}


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """One column of a new data set.

    Attributes:
        name: Name of the column.
        spec: Encoding.
        source: Source column; empty if the values are computed.
        stored: Whether stored values are copied without decoding.
    """

    name: str
    spec: str
    source: str
    stored: bool


def format_name(entry: Mapping[str, object]) -> str:
    """Return the name, as `Writer` takes it, of the format that an entry of an index says."""
    name, separator = str(entry.get("format")), entry.get("separator")
    return f"{name}:{separator}" if isinstance(separator, str) else name


def map_columns(
    columns: Mapping[str, Sequence[Column]],
    source: Format,
    target: str,
    *,
    decoded: Collection[str] = (),
    encodings: Mapping[str, str],
    rename: Mapping[str, str],
    select: Collection[str] | None,
    drop: Collection[str],
) -> list[ColumnMapping]:
    """Return the columns of a new data set.

    Args:
        columns: Columns of the source, for each of its schemas.
        source: Format of the source.
        target: Format of the new data set.
        decoded: Columns that a stream decodes otherwise than they are stored.
        encodings: Requested encodings by new name.
        rename: New names by old name.
        select: Columns to take; None for all.
        drop: Columns to leave out.

    Raises:
        ConfigError: If a column does not exist, or cannot be written in this format.
    """
    both = select_columns(columns, rename, select, drop)
    names = [new for _, new in both]
    check_names(f"columns={list(encodings)}", "the new data set", encodings, names)
    format_: Format = make("format", target)
    found = [(columns[old][0], new) for old, new in both if new not in encodings]
    if lacking := [(column, new) for column, new in found if _spec(column, format_) is None]:
        raise _no_encodings(lacking, format_, target)
    return [
        _map_column(
            columns[old], new, encodings.get(new), (source, format_), target, decoded=old in decoded
        )
        for old, new in both
    ]


def select_columns(
    columns: Collection[str],
    rename: Mapping[str, str],
    select: Collection[str] | None,
    drop: Collection[str],
) -> list[tuple[str, str]]:
    """Return the old and new names of the columns of a new data set; arguments as for `map_columns`.

    Raises:
        ConfigError: If a column does not exist, none is left, or two get one name.
    """
    for what, names in (("rename", rename), ("select", select or ()), ("drop", drop)):
        check_names(f"{what}={list(names)}", "the data set", names, columns)
    selected = [n for n in columns if (select is None or n in select) and n not in drop]
    if not selected:
        raise ConfigError("no column is left to write; take fewer of them away")
    check_renamed(rename, selected)
    names = [rename.get(name, name) for name in selected]
    check_distinct(names)
    return list(zip(selected, names))


def check_distinct(names: Sequence[str]) -> None:
    """Raise a ConfigError if two columns of a new data set have one name."""
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ConfigError(f"two columns would be called {twice[0]!r}; rename or drop one of them")


def check_renamed(rename: Collection[str], selected: Collection[str]) -> None:
    """Raise a ConfigError if a renamed column is not among those that are written."""
    if left_out := [name for name in rename if name not in selected]:
        raise ConfigError(
            f"rename={list(rename)}: column {left_out[0]!r} is left out; rename only columns that are written"
        )


def _map_column(
    columns: Sequence[Column],
    name: str,
    spec: str | None,
    formats: tuple[Format, Format],
    to: str,
    *,
    decoded: bool,
) -> ColumnMapping:
    source, target = formats
    old = columns[0].name
    is_default = spec is None
    spec = spec or _spec(columns[0], target)
    if spec is None:
        raise _no_encodings([(columns[0], name)], target, to)
    encoding = make_encoding(name, spec, target.encodings)
    _check_times(columns, name, spec)
    if is_default:
        _check_floats(columns, Column(name, spec, encoding))
    # Formats with their own encodings do not store encoded bytes; keys are text in other formats.
    if source.encodings or target.encodings or name == target.key:
        return ColumnMapping(name, spec, old, stored=False)
    same = all(same_encoding(c.encoding, encoding) for c in columns)
    as_bytes = spec == "bytes" and not decoded
    # Decoding fixed-size arrays is lossless, and faster.
    return ColumnMapping(name, spec, old, stored=as_bytes or (same and encoding.dtype is None))


def _check_times(columns: Sequence[Column], name: str, spec: str) -> None:
    """Raise a ConfigError if times of several units, or with and without a zone, would be mixed."""
    specs = [*dict.fromkeys(column.spec for column in columns)]
    if not is_converted_alike(specs, spec):
        raise ConfigError(
            f"column {columns[0].name!r} is {' in some shards and '.join(specs)} in others, which "
            f"{name}:{spec} would mix up; choose another encoding, such as {name}:float64 for seconds, or "
            "convert each data set by itself"
        )


def _check_floats(columns: Sequence[Column], new: Column) -> None:
    """Raise a ConfigError if an encoding that nobody asked for would round the numbers of a column."""
    new_dtype = _number_type(new)
    if new_dtype is None or new_dtype.kind != "f":
        return
    for column in columns:
        dtype = _number_type(column)
        if dtype is not None and dtype.kind in "iuf" and not np.can_cast(dtype, new_dtype):
            raise ConfigError(
                f"column {column.name!r} is {columns[0].spec} in some shards and {column.spec} in others, "
                f"whose numbers {new.spec} would round; name an encoding for all of them ({new.name}:float64)"
            )


def _number_type(column: Column) -> np.dtype[Any] | None:
    return column.encoding.dtype or _TEXT_NUMBERS.get(column.spec)


def _no_encodings(lacking: Sequence[tuple[Column, str]], target: Format, to: str) -> ConfigError:
    """Return the error for all columns, each with its new name, that a format has no encoding for."""
    lines = [
        str(_no_encoding_of_time(column, name, target, to))
        for column, name in lacking
        if is_temporal(column.spec)
    ]
    if others := [(column, name) for column, name in lacking if not is_temporal(column.spec)]:
        has = target.encodings or list_names("encoding")
        named = ", ".join(f"{column.name!r} ({column.spec})" for column, _ in others)
        chosen = ",".join(f"{name}:{_choice(column, target)}" for column, name in others)
        many = len(others) > 1
        lines.append(
            f"column{'s' * many} {named}: format {to} has no such encoding{'s' * many}, only "
            f"{', '.join(has)}; name one of these for {'each' if many else 'it'} ({chosen}), or leave the "
            f"column{'s' * many} out"
        )
    return ConfigError("\n".join(lines))


def _choice(column: Column, target: Format) -> str:
    """Return the encoding to advise for a column; an ellipsis if any may be the right one."""
    lists = "list<double>"
    if column.spec == "ndarray" and target.encodings and lists in target.encodings:
        return lists
    return "json" if "json" in (target.encodings or list_names("encoding")) else "…"


def _no_encoding_of_time(column: Column, name: str, target: Format, to: str) -> ConfigError:
    offered: dict[str, str] = {}
    for encoding, meaning in encoding_choices(column.spec).items():
        if meaning not in offered.values() and _can_store(target, encoding, None):
            offered[encoding] = meaning
    if not offered:
        return ConfigError(
            f"column {column.name!r} ({column.spec}): format {to} cannot store such values; leave the column "
            f"out (--drop {column.name})"
        )
    ways = " or ".join(f"{name}:{encoding} ({meaning})" for encoding, meaning in offered.items())
    return ConfigError(
        f"column {column.name!r} ({column.spec}): format {to} has no encoding for such values; say how to "
        f"store them with --columns (Columns(encodings=)): {ways}; or leave the column out (--drop "
        f"{column.name})"
    )


def _spec(column: Column, target: Format) -> str | None:
    """Return the default encoding of a column in a format; None if there is none."""
    dtype = _number_type(column)
    names = [column.spec, *_SYNONYMS.get(column.spec, ())]
    if dtype is not None and dtype.shape:
        names.append(f"ndarray:{dtype.base.name}:{','.join(map(str, dtype.shape))}")
    elif dtype is not None:
        names += [dtype.name, _NUMBER_NAMES.get(dtype.kind, dtype.name)]
    if column.spec.startswith("decimal") and not column.spec.endswith("?"):
        names.append("str_decimal")  # lossless
    names += array_specs(column.spec)
    return next((name for name in names if _can_store(target, name, dtype)), None)


def _can_store(target: Format, name: str, dtype: np.dtype[Any] | None) -> bool:
    """Return whether a format has an encoding that stores values without loss."""
    if not target.encodings:
        return is_known("encoding", split_spec("encoding", name)[0])
    if name not in target.encodings:
        return False
    new = target.encodings[name].dtype
    # "float" has 64 bits in one format and 32 in another.
    return dtype is None or new is None or dtype.kind != "f" or np.can_cast(dtype, new)


def add_key_column(columns: Iterable[ColumnMapping], target: str) -> list[ColumnMapping]:
    """Add the key column that a format needs."""
    selected, key = list(columns), make("format", target).key
    if key is None or any(column.name == key for column in selected):
        return selected
    return [ColumnMapping(key, "str", "", stored=False), *selected]


def check_writable(columns: Iterable[ColumnMapping], target: str) -> None:
    """Check that a format can store columns, before anything is written.

    Raises:
        ConfigError: If it cannot.
    """
    format_ = format_of(target)
    made: list[Column] = []
    try:
        own = format_.encodings
        made += [Column(c.name, c.spec, make_encoding(c.name, c.spec, own)) for c in columns]
        format_.writer(made, WriteSettings(None, (), None))
    except StreamplugError as error:
        of_column = any(repr(column.name) in f"{error}" for column in made)
        advice = "rename the column, or leave it out"
        other = "name another one for the new data set with format= (--format), such as mds"
        raise ConfigError(f"format {target}: {error}; {advice if of_column else other}") from error
