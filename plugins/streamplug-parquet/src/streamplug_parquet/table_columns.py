"""Columns of tables, and how files that are older than the table's schema have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import pyarrow as pa

from streamplug.errors import ConfigError, CorruptShardError
from streamplug.interfaces import Column
from streamplug.plugin_kit import short_repr
from streamplug_parquet.encodings import ArrowTypes
from streamplug_parquet.memory_bounds import decoded_limit, too_large
from streamplug_parquet.types import plain, spec_of

_FIELD_ID = b"PARQUET:field_id"
_ENCODINGS = ArrowTypes()


class FileFields:
    """Columns of a file, or fields of a struct, by field id and by name, of several the first.

    Attributes:
        by_name: Number and field of each; tables may have thousands.
    """

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        """Take columns or fields."""
        self._fields = list(enumerate(fields))
        self.by_name = {field.name: (number, field) for number, field in reversed(self._fields)}

    @cached_property
    def by_id(self) -> Mapping[int, tuple[int, pa.Field]]:
        """Number and field of those with ids.

        Raises:
            CorruptShardError: If an id is no integer.
        """
        ids = ((_id_of(field), (number, field)) for number, field in reversed(self._fields))
        return {id_: numbered for id_, numbered in ids if id_ is not None}


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, or a field, an item, a key or a value of one.

    Attributes:
        field: Its name, type and, in the metadata ``PARQUET:field_id``, its id, if any.
        nullable: Whether values may be missing.
        names: Names in files whose columns have no ids; None refuses such files.
        default: Value in files without it.
        children: Fields of a struct, items of a list, or keys and values of a map.
    """

    field: pa.Field
    nullable: bool
    names: Sequence[str] | None
    default: Any = None
    children: Sequence[TableColumn] = ()

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

    def missing(self, rows: int, where: str) -> pa.Array:
        """Return the values of rows of a file that does not have the column; `where` names it in errors.

        Raises:
            CorruptShardError: If the table requires values.
        """
        if self.default is None and not self.nullable:
            raise CorruptShardError(f"it has no column {where!r}, whose values the table requires")
        type_ = plain(self.field.type, inside=True)
        value = pa.array([self.default], type_)
        if rows * value.nbytes > decoded_limit(0):
            raise too_large(
                f"the default of the column {where!r}", rows * value.nbytes, decoded_limit(0)
            )
        return pa.nulls(rows, type_) if self.default is None else pa.repeat(value[0], rows)

    def find_in(self, file: FileFields) -> tuple[int, pa.Field] | None:
        """Return the number and the field of the column in a file; None if the file does not have it.

        Raises:
            CorruptShardError: If fields have ids that are no integers, or none that the table has names for.
        """
        own = _id_of(self.field)
        if own is not None and file.by_id:
            return file.by_id.get(own)
        if self.names is None:
            raise CorruptShardError(
                "its columns have no field ids, and the table has no names for such files"
            )
        named = [file.by_name[name] for name in self.names if name in file.by_name]
        return min(named, key=itemgetter(0), default=None)

    def read_as(self, array: pa.Array, stored: pa.Field) -> pa.Array:
        """Return values of a file as values of the table, with its fields at each depth.

        Args:
            array: The values, which may be dictionaries.
            stored: Field of the file, with ids at each depth.

        Raises:
            CorruptShardError: If values of the file are not ones of the table.
        """
        return _read_as(array, stored, self, self.name, inside=False)

    def check(self, stored: pa.Field) -> None:
        """Check that values of a field of a file can be read as values of the table.

        Raises:
            CorruptShardError: If they cannot.
        """
        [empty] = pa.schema([stored]).empty_table().columns
        self.read_as(empty.combine_chunks(), stored)


def _read_as(
    array: pa.Array, stored: pa.Field, column: TableColumn, where: str, *, inside: bool
) -> pa.Array:
    """Return values of a file as those of a column; `where` names them, `inside` is that of `plain`."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    of, type_, wanted = pa.types, _storage_type(stored), plain(column.field.type, inside=inside)
    if of.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if of.is_struct(wanted) and of.is_struct(array.type):
        file, arrays = FileFields(type_), []
        for child in column.children:
            path = f"{where}.{child.name}"
            found = child.find_in(file)
            arrays.append(
                child.missing(len(array), path)
                if found is None
                else _read_as(array.field(found[0]), found[1], child, path, inside=True)
            )
        return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=array.is_null())
    if of.is_map(wanted) and of.is_map(array.type):
        fields = type_.key_field, type_.item_field
        parts = [
            _read_as(array.values.field(number), field, child, f"{where}.{name}", inside=True)
            for number, (name, field, child) in enumerate(
                zip(("key", "value"), fields, column.children)
            )
        ]
        entries = pa.StructArray.from_arrays(parts, fields=[wanted.key_field, wanted.item_field])
        return _with_items(array, wanted, entries)
    if of.is_list(wanted) and _is_list(array.type):
        if not of.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_type))
        [child] = column.children
        items = _read_as(array.values, type_.value_field, child, f"{where}[]", inside=True)
        return _with_items(array, wanted, items)
    if of.is_dictionary(array.type):
        array = array.dictionary_decode()
    found_type = plain(array.type, inside=inside)
    if of.is_nested(wanted) or not (found_type == wanted or is_promotion(array.type, wanted)):
        raise CorruptShardError(
            f"column {where!r} is {found_type}, which cannot be read as {wanted}, its type in the table"
        )
    return array if array.type == wanted else array.cast(wanted)


def _storage_type(field: pa.Field) -> pa.DataType:
    type_ = field.type
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return type_


def _is_list(type_: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_list(type_) or of.is_large_list(type_) or of.is_fixed_size_list(type_))


def _with_items(array: pa.Array, type_: pa.DataType, items: pa.Array) -> pa.Array:
    """Return the lists or maps of an array with other items."""
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(array), buffers, array.null_count, array.offset, [items]
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
