"""Writer of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError
from streamplug.interfaces import Column, EncodedRows, RowPiece, ShardWriter, WriteSettings
from streamplug.types import Buffer, Int64
from streamplug_parquet.footer import parsed, schema_of
from streamplug_parquet.nested import writable
from streamplug_parquet.row_collector import Collector, groups_of, value_of
from streamplug_parquet.types import plain, spec_of
from streamplug_parquet.values import Nested

_COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
LISTS_OR_NONE = int(pa.__version__.partition(".")[0]) >= 26
"""Whether this version of pyarrow can read nullable fixed-size lists."""

_SLACK = 64
"""Maximum growth of a column's metadata over that of the smallest file, in bytes."""


@dataclass(frozen=True)
class WriteOptions:
    """Options for writing.

    Attributes:
        rows: Maximum rows of a row group.
        size: Bytes of a row group before compression; a single row may exceed it.
        compression: Name of the compression within the file.
        level: Compression level; None is the default.
    """

    rows: int = 1 << 14
    size: int = 1 << 20
    compression: str = "zstd"
    level: int | None = None

    @classmethod
    def parse(cls, argument: str | None) -> WriteOptions:
        """Parse the options that follow the name of the format.

        Raises:
            ConfigError: If an option is invalid.
        """
        options: dict[str, Any] = {}
        for option in argument.split(",") if argument else ():
            name, equals, value = option.partition("=")
            if not equals:
                name, value = "rows", option
            if name == "rows" and value.isdecimal() and int(value) > 0:
                options[name] = int(value)
            elif name == "size":
                options[name] = parse_bytes(value, "size")
            elif name == "compression" and value.partition(":")[0] in _COMPRESSIONS:
                kind, colon, level = value.partition(":")
                options["compression"] = kind
                if colon and (kind in ("none", "snappy") or not level.isdecimal()):
                    raise ConfigError(f"format parquet:{argument}: {value!r} has no such level")
                options["level"] = int(level) if colon else None
            else:
                raise ConfigError(
                    f"format parquet:{argument}: {option!r} is none of ROWS, rows=ROWS, size=BYTES and "
                    f"compression=NAME or NAME:LEVEL, where NAME is one of {', '.join(_COMPRESSIONS)}"
                )
        return cls(**options)


class ParquetWriter(ShardWriter):
    """Writes the Parquet files of one data set."""

    max_size = None

    def __init__(
        self, columns: Sequence[Column], settings: WriteSettings, options: WriteOptions
    ) -> None:
        """Set the columns.

        Raises:
            ConfigError: If Parquet cannot store them.
        """
        self._options = options
        self._schema = pa.schema(_fields(columns))
        self._collector = Collector(columns, self._schema)
        self.encode_pieces = self._collector.copy_row  # type: ignore[method-assign,assignment]  # names of arguments
        self._entry: dict[str, Any] = {
            "columns": {column.name: column.spec for column in columns},
            "compression": settings.compression,
            "format": "parquet",
            "hashes": list(settings.hashes),
            "size_limit": settings.size_limit,
            "version": 2,
        }
        try:
            empty = self._schema.empty_table()
            files = [_file(self._schema, [empty] * count, options) for count in (0, 1, 2)]
        except pa.ArrowException as error:
            raise ConfigError(f"Parquet cannot hold these columns: {error}") from error
        except OSError as error:
            raise ConfigError(
                f"compression={options.compression}:{options.level}: {error}; take another level"
            ) from error
        self._check_encodings(b"".join(files[0]))
        sizes = [sum(map(len, file)) for file in files]
        slack = _SLACK * _leaves(self._schema)
        group = sizes[2] - sizes[1] + slack
        self.base_size = sizes[0] + group + slack
        self.row_overhead = -(-group // min(options.rows, 1000)) + _leaves(self._schema)

    def _check_encodings(self, file: Buffer) -> None:
        """Refuse types that Parquet reads back as others."""
        for field in schema_of(parsed(file)):
            old_spec, new_spec = (
                spec_of(plain(f.type)) for f in (self._schema.field(field.name), field)
            )
            if old_spec != new_spec:
                raise ConfigError(
                    f"column {field.name!r}: Parquet stores {old_spec} as {new_spec}: "
                    "name that as its encoding"
                )

    def entry(self) -> dict[str, Any]:
        return {**self._entry, "columns": dict(self._entry["columns"])}

    def encode(self, sample: Mapping[str, Any]) -> RowPiece:
        return self._collector.to_table(self.encode_pieces(sample)[0])

    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        return self._collector.batch(columns)

    def pack(self, pieces: Sequence[RowPiece]) -> Sequence[RowPiece]:
        return self._collector.to_tables(pieces)

    def assemble(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        whole = pa.concat_tables(parts or [self._schema.empty_table()])
        groups = groups_of(sizes, self._options.rows, self._options.size)
        # Combined, as page boundaries depend on the chunks of a column.
        tables = (whole[group].combine_chunks() for group in groups)
        return {"data": _file(self._schema, tables, self._options)}


class _Pieces:
    """File object that collects the written buffers in memory."""

    closed = False

    def __init__(self) -> None:
        self.row_groups: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.row_groups.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing; buffers are not delayed."""

    def close(self) -> None:
        self.closed = True


def _file(schema: pa.Schema, tables: Iterable[pa.Table], options: WriteOptions) -> list[bytes]:
    """Return the buffers of a file with a row group for each table."""
    out = _Pieces()
    with pq.ParquetWriter(
        out,
        schema,
        compression=options.compression,
        compression_level=options.level,
        # Most values differ and readers read few of them: dictionaries cost more than they save.
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as file:
        for table in tables:
            file.write_table(table, row_group_size=max(len(table), 1))
    return out.row_groups


def _fields(columns: Sequence[Column]) -> list[pa.Field]:
    """Return the fields of columns; one error names all that cannot be written."""
    fields, errors = [], []
    for column in columns:
        try:
            fields.append(_field(column))
        except ConfigError as error:
            errors.append(str(error))
    if errors:
        raise ConfigError("; ".join(errors))
    return fields


def _field(column: Column) -> pa.Field:
    value = value_of(column)
    try:
        column.name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"column {column.name!r}: its name is no text in UTF-8") from error
    if isinstance(value, Nested):
        try:
            writable(value.type)
        except ConfigError as error:
            raise ConfigError(f"column {column.name!r}: {error}") from None
    if value.nullable and pa.types.is_fixed_size_list(value.type) and not LISTS_OR_NONE:
        raise ConfigError(
            f"column {column.name!r}: pyarrow {pa.__version__} cannot read {column.spec} again, 26 can"
        )
    return pa.field(column.name, value.written, nullable=value.nullable)


def _leaves(schema: pa.Schema) -> int:
    """Return the approximate number of columns of a file, including nested ones."""
    return str(schema).count(":") + 1
