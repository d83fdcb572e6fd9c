"""Columns of tables whose files are older than their schema."""

from __future__ import annotations

import pyarrow as pa
import pytest
from streamplug_parquet import table_columns
from streamplug_parquet.table_columns import FileFields, TableColumn, is_promotion, with_field_id

from streamplug.errors import ConfigError, CorruptShardError

INT32, INT64, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int8(), pa.int16()), (INT32, INT64), (INT32, DOUBLE), (INT32, pa.decimal128(10, 0)),
        (INT64, pa.decimal128(21, 2)), (FLOAT, DOUBLE), (pa.decimal128(5, 2), pa.decimal128(9, 2)),
        (pa.decimal128(5, 2), pa.decimal128(9, 4)), (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_wider_types(stored, wanted):
    assert is_promotion(stored, wanted)
    assert not is_promotion(wanted, stored) or pa.types.is_timestamp(stored)


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (INT64, INT32), (INT64, DOUBLE), (INT32, FLOAT), (INT64, pa.decimal128(18, 0)), (DOUBLE, FLOAT),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)), (pa.decimal128(5, 2), DOUBLE), (pa.string(), INT64),
        (pa.date32(), pa.timestamp("us", "UTC")), (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.bool_(), pa.int8()), (pa.uint8(), pa.int16()), (INT64, pa.string()),
    ],
)  # fmt: skip
def test_other_types_are_none(stored, wanted):
    assert not is_promotion(stored, wanted)


def test_columns_are_found_by_id_or_else_by_name():
    column = TableColumn(with_field_id(pa.field("new", INT64), 7), True, ["old", "older"])
    by_id = pa.schema(
        [with_field_id(pa.field("new", INT64), 1), with_field_id(pa.field("x", INT32), 7)]
    )
    assert column.find_in(FileFields(by_id)).name == "x"
    assert column.find_in(FileFields(pa.schema([("new", INT64), ("older", INT64)]))).name == "older"
    assert column.find_in(FileFields(pa.schema([("new", INT64)]))) is None
    assert column.find_in(FileFields(pa.schema([with_field_id(pa.field("old", INT64), 3)]))) is None
    nameless = TableColumn(column.field, True, None)
    with pytest.raises(CorruptShardError, match="no field ids"):
        nameless.find_in(FileFields(pa.schema([("new", INT64)])))
    with pytest.raises(CorruptShardError, match="'new' is string, which cannot be read as int64"):
        column.find_in(FileFields(pa.schema([("old", pa.string())])))
    with pytest.raises(ConfigError, match="column 'u'"):
        TableColumn(pa.field("u", pa.dense_union([pa.field("a", INT64)])), True, ["u"]).as_column()


@pytest.mark.parametrize("has_ids", [True, False])
def test_columns_of_wide_files_are_found_without_a_look_at_all_for_each(has_ids, monkeypatch):
    fields = [pa.field(f"column {number}", INT64) for number in range(200)]
    if has_ids:
        fields = [with_field_id(field, number) for number, field in enumerate(fields)]
    looks, id_of = [], table_columns._id_of
    monkeypatch.setattr(table_columns, "_id_of", lambda field: looks.append(1) or id_of(field))
    file = FileFields(pa.schema(fields))
    for field in fields:
        assert TableColumn(field, True, [field.name]).find_in(file) == field
    assert len(looks) <= 4 * len(fields)


def test_of_several_columns_of_a_file_the_first_is_found():
    named = FileFields(pa.schema([("b", INT64), ("a", INT32), ("a", INT64)]))
    assert TableColumn(pa.field("c", INT64), True, ["a", "b"]).find_in(named).name == "b"
    assert TableColumn(pa.field("c", INT64), True, ["a"]).find_in(named).type == INT32
    ids = FileFields(pa.schema([with_field_id(pa.field(name, INT64), 7) for name in "ab"]))
    column = TableColumn(with_field_id(pa.field("c", INT64), 7), True, None)
    assert column.find_in(ids).name == "a"


def test_a_field_id_of_a_file_that_is_no_integer_is_refused():
    column = TableColumn(with_field_id(pa.field("a", INT64), 7), True, ["a"])
    damaged = pa.schema([pa.field("a", INT64, metadata={"PARQUET:field_id": "abcdefgh"})])
    for table_column in (column, TableColumn(pa.field("a", INT64), True, ["a"])):
        with pytest.raises(CorruptShardError, match="column 'a' has the field id b'abcdefgh'"):
            table_column.find_in(FileFields(damaged))
