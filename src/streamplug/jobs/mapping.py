"""Which columns a new data set has, and how their values get there from those of another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamplug.config import check_names
from streamplug.errors import ConfigError, StreamplugError
from streamplug.index import make_encoding
from streamplug.interfaces import Column, Format, WriteSettings
from streamplug.jobs.stored import same_encoding
from streamplug.plugin.registry import known, make

_TEXT = {"float": "float64"}
"""What formats that store text call otherwise than others do."""
_KINDS = {"i": "int", "u": "int", "f": "float"}
_NUMBERS = {"str_int": "int", "str_float": "float"}


@dataclass(frozen=True, slots=True)
class Mapped:
    """A column of a new data set.

    Attributes:
        name: Its name.
        spec: Its encoding.
        source: The column that its values are those of; empty if they are made otherwise.
        stored: Whether they are written as they are stored there.
    """

    name: str
    spec: str
    source: str
    stored: bool


def format_name(entry: Mapping[str, object]) -> str:
    """Return the name, as `Writer` takes it, of the format that an entry of an index says."""
    name, separator = str(entry.get("format")), entry.get("separator")
    return f"{name}:{separator}" if isinstance(separator, str) else name


def mapped(
    columns: Mapping[str, Sequence[Column]],
    source: Format,
    target: str,
    *,
    encodings: Mapping[str, str],
    rename: Mapping[str, str],
    select: Collection[str] | None,
    drop: Collection[str],
) -> list[Mapped]:
    """Return the columns of a new data set.

    Args:
        columns: Those of the other, as each of its schemas has them.
        source: Its format.
        target: That of the new one.
        encodings: Those that are asked for, by new names.
        rename: New names by old ones.
        select: The columns to take; None for all.
        drop: Those to leave out.

    Raises:
        ConfigError: If a column does not exist, or cannot be written in this format; the message says what
            to do about it.
    """
    for what, names in (("rename", rename), ("select", select or ()), ("drop", drop)):
        check_names(f"{what}={list(names)}", "the data set", names, columns)
    taken = [n for n in columns if (select is None or n in select) and n not in drop]
    if not taken:
        raise ConfigError("no column is left to write; take fewer of them away")
    names = [rename.get(name, name) for name in taken]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two columns would be called {twice[0]!r}; rename or drop one of them")
    check_names(f"columns={list(encodings)}", "the new data set", encodings, names)
    format_: Format = make("format", target)
    return [
        _mapped(columns[old], new, encodings.get(new), (source, format_), target)
        for old, new in zip(taken, names)
    ]


def _mapped(
    columns: Sequence[Column],
    name: str,
    asked: str | None,
    formats: tuple[Format, Format],
    to: str,
) -> Mapped:
    source, target = formats
    old = columns[0].name
    spec = asked or _spec(columns[0], target)
    if spec is None:
        has = ", ".join(target.encodings) or "what plugins provide"
        raise ConfigError(
            f"column {old!r} ({columns[0].spec}): format {to} has no such encoding, only {has}; name one of "
            f"these for it ({name}:…), or leave the column out"
        )
    encoding = make_encoding(name, spec, target.encodings)
    # Formats with encodings of their own do not store the bytes of a value, and keys are texts to others.
    if source.encodings or target.encodings or name == target.key:
        return Mapped(name, spec, old, stored=False)
    same = all(same_encoding(c.encoding, encoding) for c in columns)
    # Arrays of what is plain memory are as exact, and faster.
    return Mapped(name, spec, old, stored=spec == "bytes" or (same and encoding.dtype is None))


def _spec(column: Column, target: Format) -> str | None:
    """Return the encoding that a column gets if nobody says; None if there is none like it."""
    if target.encodings:
        dtype = column.encoding.dtype
        scalar = dtype.kind if dtype is not None and not dtype.shape else ""
        near = _NUMBERS.get(column.spec) or _KINDS.get(scalar)
        return next((s for s in (column.spec, near) if s in target.encodings), None)
    spec = _TEXT.get(column.spec, column.spec)
    return spec if known("encoding", spec.partition(":")[0]) else None


def with_key(columns: Iterable[Mapped], target: str) -> list[Mapped]:
    """Return columns, and that of keys if a format needs one and there is none."""
    found, key = list(columns), make("format", target).key
    if key is None or any(column.name == key for column in found):
        return found
    return [Mapped(key, "str", "", stored=False), *found]


def check_writable(columns: Iterable[Mapped], target: str) -> None:
    """Check that a format can have some columns, before anything is written.

    Raises:
        ConfigError: If it cannot.
    """
    format_: Format = make("format", target)
    made = [
        Column(c.name, c.spec, make_encoding(c.name, c.spec, format_.encodings)) for c in columns
    ]
    try:
        format_.writer(made, WriteSettings(None, (), None))
    except StreamplugError as error:
        raise ConfigError(
            f"format {target}: {error}; rename the column, or leave it out"
        ) from error
