"""Columns of tables, and how files that are older than the table's schema have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import pyarrow as pa

from streamplug.errors import ConfigError, CorruptShardError
from streamplug.interfaces import Column
from streamplug.plugin_kit.codec_errors import short_repr
from streamplug_parquet.encodings import ArrowTypes
from streamplug_parquet.types import plain, spec_of

_FIELD_ID = b"PARQUET:field_id"
_ENCODINGS = ArrowTypes()


class FileFields:
    """Columns of a file by field id and by name, of several the first; tables may have thousands.

    Attributes:
        by_name: Number and field of each column.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Take the columns of a file."""
        self._fields = list(schema)
        numbered = reversed(list(enumerate(self._fields)))
        self.by_name = {field.name: (number, field) for number, field in numbered}

    @cached_property
    def by_id(self) -> Mapping[int, pa.Field]:
        """Columns with ids.

        Raises:
            CorruptShardError: If an id is no integer.
        """
        ids = ((_id_of(field), field) for field in reversed(self._fields))
        return {number: field for number, field in ids if number is not None}


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        field: Its name, type and, in the metadata ``PARQUET:field_id`` at each depth, its ids, if any.
        nullable: Whether values may be missing.
        names: Names in files whose columns have no ids; None refuses such files.
        default: Value in files without the column.
    """

    field: pa.Field
    nullable: bool
    names: Sequence[str] | None
    default: Any = None

    @property
    def name(self) -> str:
        """Name in the table."""
        return str(self.field.name)

    @property
    def type(self) -> pa.DataType:
        """Type that values are read as."""
        return plain(self.field.type)

    def as_column(self) -> Column:
        """Return the column of the index.

        Raises:
            ConfigError: If its type cannot be read.
        """
        try:
            spec = spec_of(self.type) + ("?" if self.nullable else "")
            return Column(self.name, spec, _ENCODINGS[spec])
        except ConfigError as error:
            raise ConfigError(f"column {self.name!r}: {error}") from None
        except (KeyError, RecursionError):
            raise ConfigError(f"column {self.name!r}: its type is nested too deeply") from None

    def find_in(self, file: FileFields) -> pa.Field | None:
        """Return the column of a file; None if the file does not have it.

        Raises:
            CorruptShardError: If the file has it with a type that is not one of the table's, or a field id
                is no integer.
        """
        own = _id_of(self.field)
        if own is not None and file.by_id:
            stored = file.by_id.get(own)
        elif self.names is None:
            raise CorruptShardError(
                "its columns have no field ids, and the table has no names for such files"
            )
        else:
            named = [file.by_name[name] for name in self.names if name in file.by_name]
            stored = min(named, key=itemgetter(0))[1] if named else None
        if stored is not None:
            self._check(stored)
        return stored

    def _check(self, stored: pa.Field) -> None:
        found, expected = plain(stored.type), self.type
        try:
            same = spec_of(found) == spec_of(expected)
        except ConfigError:
            same = False
        if same and not _ids_fit(stored, self.field):
            raise CorruptShardError(
                f"column {self.name!r} has other fields than the table, under the same names; rewrite the "
                "file"
            )
        if not same and not pa.types.is_null(found) and not is_promotion(found, expected):
            raise CorruptShardError(
                f"column {self.name!r} is {found}, which cannot be read as {expected}, its type in the table"
            )


def with_field_id(field: pa.Field, number: int) -> pa.Field:
    """Return a field with an id."""
    return field.with_metadata({_FIELD_ID: str(number)})


def _id_of(field: pa.Field) -> int | None:
    value = (field.metadata or {}).get(_FIELD_ID)
    try:
        return None if value is None else int(value)
    except ValueError:  # files may store any metadata
        raise CorruptShardError(
            f"column {field.name!r} has the field id {short_repr(value)}, which is no integer"
        ) from None


def _ids_fit(stored: pa.Field, expected: pa.Field) -> bool:
    """Return whether two fields of equal types have equal ids, at every depth at which both have them."""
    ids = {_id_of(stored), _id_of(expected)} - {None}
    if len(ids) > 1:
        return False
    inner, outer = _children(stored.type), _children(expected.type)
    return all(_ids_fit(one, other) for one, other in zip(inner, outer))


def _children(type_: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if pa.types.is_nested(type_):
        return [type_.field(number) for number in range(type_.num_fields)]
    return []


def is_promotion(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of a type is one of another, as formats of tables require of a new type."""
    of = pa.types
    fits: Any = False
    if of.is_signed_integer(stored):
        fits = (
            (of.is_signed_integer(wanted) and wanted.bit_width > stored.bit_width)
            or (of.is_float64(wanted) and stored.bit_width < wanted.bit_width)
            or (of.is_decimal(wanted) and wanted.precision - wanted.scale >= _digits(stored))
        )
    elif of.is_floating(stored):
        fits = of.is_floating(wanted) and wanted.bit_width > stored.bit_width
    elif of.is_decimal(stored):
        fits = (
            of.is_decimal(wanted)
            and wanted.scale >= stored.scale
            and wanted.precision - wanted.scale >= stored.precision - stored.scale
        )
    elif of.is_date(stored):
        fits = of.is_timestamp(wanted) and wanted.tz is None
    elif of.is_timestamp(stored):
        # Old writers store nanoseconds, and no zone; casts fail where digits would be lost.
        fits = of.is_timestamp(wanted) and stored.tz in (None, wanted.tz)
    return bool(fits)


def _digits(integer: pa.DataType) -> int:
    return len(str(1 << (integer.bit_width - 1)))
