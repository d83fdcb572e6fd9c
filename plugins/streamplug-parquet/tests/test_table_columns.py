"""Columns of tables whose files are older than their schema."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from streamplug_parquet import table_columns
from streamplug_parquet.table_columns import FileFields, TableColumn, is_promotion, with_field_id

from streamplug.errors import ConfigError, CorruptShardError

UTC = datetime.timezone.utc
INT32, INT64, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()


def table_column(field, names=None, *, required=(), defaults=None):
    """Return a column of a table from its Arrow field; `names` has names in files by those in the table."""
    type_ = field.type
    children = [type_.field(n) for n in range(type_.num_fields)]
    if pa.types.is_map(type_):
        children = [type_.key_field, type_.item_field]
    options = {"required": required, "defaults": defaults}
    return TableColumn(
        field,
        field.name not in required,
        (names or {}).get(field.name, [field.name]),
        (defaults or {}).get(field.name),
        [table_column(child, names, **options) for child in children],
    )


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


def name_of(column, *fields):
    """Return the name of a table's column in a file with these fields; None if it is missing."""
    found = column.find_in(FileFields(pa.schema(fields)))
    return found and found[1].name


def test_columns_are_found_by_id_or_else_by_name():
    column = TableColumn(with_field_id(pa.field("new", INT64), 7), True, ["old", "older"])
    new, x = with_field_id(pa.field("new", INT64), 1), with_field_id(pa.field("x", INT32), 7)
    assert name_of(column, new, x) == "x"
    assert name_of(column, ("new", INT64), ("older", INT64)) == "older"
    assert name_of(column, ("new", INT64)) is None
    assert name_of(column, with_field_id(pa.field("old", INT64), 3)) is None
    nameless = TableColumn(column.field, True, None)
    with pytest.raises(CorruptShardError, match="no field ids"):
        name_of(nameless, ("new", INT64))
    with pytest.raises(CorruptShardError, match="'new' is string, which cannot be read as int64"):
        column.check(pa.field("old", pa.string()))
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
        assert TableColumn(field, True, [field.name]).find_in(file)[1] == field
    assert len(looks) <= 4 * len(fields)


def test_of_several_columns_of_a_file_the_first_is_found():
    named = FileFields(pa.schema([("b", INT64), ("a", INT32), ("a", INT64)]))
    assert TableColumn(pa.field("c", INT64), True, ["a", "b"]).find_in(named)[0] == 0
    assert TableColumn(pa.field("c", INT64), True, ["a"]).find_in(named)[0] == 1
    ids = FileFields(pa.schema([with_field_id(pa.field(name, INT64), 7) for name in "ab"]))
    column = TableColumn(with_field_id(pa.field("c", INT64), 7), True, None)
    assert column.find_in(ids)[0] == 0


def test_a_field_id_of_a_file_that_is_no_integer_is_refused():
    column = TableColumn(with_field_id(pa.field("a", INT64), 7), True, ["a"])
    damaged = pa.schema([pa.field("a", INT64, metadata={"PARQUET:field_id": "abcdefgh"})])
    with pytest.raises(CorruptShardError, match="column 'a' has the field id b'abcdefgh'"):
        column.find_in(FileFields(damaged))
    nested = table_column(pa.field("s", pa.struct([with_field_id(pa.field("a", INT64), 7)])))
    with pytest.raises(CorruptShardError, match="column 'a' has the field id b'abcdefgh'"):
        nested.check(pa.field("s", pa.struct(list(damaged))))


# -- nested columns ---------------------------------------------------------------------------


def read_as(values, stored, column):
    """Return values of a file as those of a table, each also as parts of larger arrays."""
    field = stored if isinstance(stored, pa.Field) else pa.field("s", stored)
    try:
        whole = pa.array(values, field.type)
    except pa.ArrowNotImplementedError as error:  # of this pyarrow
        pytest.skip(str(error))
    found = column.read_as(whole, field)
    assert found.type == column.type
    found.validate(full=True)
    assert read_slices(whole, field, column) == found.to_pylist(maps_as_pydicts="strict")
    column.check(field)
    return found.to_pylist(maps_as_pydicts="strict")


def read_slices(whole, field, column):
    parts = [column.read_as(whole[n : n + 1], field) for n in range(len(whole))]
    return [row for part in parts for row in part.to_pylist(maps_as_pydicts="strict")]


A, B = ("a", INT64), ("b", pa.string())


@pytest.mark.parametrize(
    ("stored", "value", "wanted", "expected"),
    [
        pytest.param([A], {"a": 1}, [A, B], {"a": 1, "b": None}, id="added"),
        pytest.param([A, B], {"a": 1, "b": "x"}, [B], {"b": "x"}, id="dropped"),
        pytest.param([A, B], {"a": 1, "b": "x"}, [B, A], {"b": "x", "a": 1}, id="reordered"),
        pytest.param([("a", INT32)], {"a": 1}, [A], {"a": 1}, id="widened"),
        pytest.param([("a", FLOAT)], {"a": 0.5}, [("a", DOUBLE)], {"a": 0.5}, id="float"),
        pytest.param([("old", INT64)], {"old": 1}, [("new", INT64)], {"new": 1}, id="renamed"),
        pytest.param([A], {"a": 1}, [B], {"b": None}, id="replaced"),
        pytest.param([("a", pa.null())], {"a": None}, [A], {"a": None}, id="null"),
        pytest.param(
            [("a", pa.dictionary(pa.int8(), pa.large_string()))], {"a": "x"},
            [("a", pa.string())], {"a": "x"}, id="dictionary",
        ),
        pytest.param(
            [("a", pa.list_(INT32, 2))], {"a": [1, 2]},
            [("a", pa.list_(INT64))], {"a": [1, 2]}, id="list of one size",
        ),
        pytest.param(
            [("a", pa.large_list(INT32))], {"a": [1, 2]},
            [("a", pa.list_(INT64))], {"a": [1, 2]}, id="large list",
        ),
        pytest.param(
            [("a", pa.timestamp("ns"))], {"a": 1000},
            [("a", pa.timestamp("us", "UTC"))], {"a": datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)},
            id="time",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("depth", range(8))
def test_structs_of_older_files_get_the_fields_of_the_table(stored, value, wanted, expected, depth):
    """At the top, and in lists, structs and maps, with values missing at each depth."""
    around = [
        (lambda t: t, lambda v: v),
        (pa.list_, lambda v: [v, None]),
        (lambda t: pa.struct([("inner", t)]), lambda v: {"inner": v}),
        (lambda t: pa.map_(pa.string(), t), lambda v: {"k": v, "l": None}),
        (lambda t: pa.list_(pa.list_(t)), lambda v: [[v], None, [], [None, v]]),
        (lambda t: pa.list_(pa.struct([("inner", t)])), lambda v: [None, {"inner": v}]),
        (lambda t: pa.map_(pa.int8(), pa.list_(t)), lambda v: {1: [v], 2: None, 3: []}),
        (lambda t: pa.struct([("m", pa.map_(pa.int8(), t))]), lambda v: {"m": {5: v}}),
    ]
    wrap_type, wrap = around[depth]
    column = table_column(pa.field("s", wrap_type(pa.struct(wanted))), {"new": ["old"]})
    file_type = wrap_type(pa.struct(stored))
    values = [as_items(wrap(value)), None, as_items(wrap(None)), as_items(wrap(value))]
    assert read_as(values, file_type, column) == [
        wrap(expected), None, wrap(None), wrap(expected)
    ]  # fmt: skip


def as_items(value):
    """Return a value with pairs for the dicts of maps, as Arrow takes them."""
    if isinstance(value, dict):
        inner = {key: as_items(item) for key, item in value.items()}
        return list(inner.items()) if not {"k", 1, 5}.isdisjoint(inner) else inner
    return [as_items(item) for item in value] if isinstance(value, list) else value


def test_keys_of_maps_evolve_too():
    column = table_column(pa.field("s", pa.map_(INT64, DOUBLE)))
    assert read_as([[(1, 0.5)], None], pa.map_(INT32, FLOAT), column) == [{1: 0.5}, None]


def test_fields_of_structs_are_found_by_id():
    def struct(*fields):
        return pa.struct([with_field_id(pa.field(name, INT64), number) for name, number in fields])

    exchanged = table_column(pa.field("s", struct(("a", 2), ("b", 1))), {"a": None, "b": None})
    assert read_as([{"a": 1, "b": 2}], struct(("a", 1), ("b", 2)), exchanged) == [{"a": 2, "b": 1}]
    again = table_column(pa.field("s", struct(("a", 3))))
    assert read_as([{"a": 1}], struct(("a", 1)), again) == [{"a": None}]  # dropped, and added
    assert read_as([{"a": 1}], pa.struct([("a", INT64)]), again) == [{"a": 1}]  # of the mapping
    with pytest.raises(CorruptShardError, match="no field ids"):
        exchanged.check(pa.field("s", pa.struct([("a", INT64)])))


def test_fields_that_files_do_not_have_are_defaults_or_refused():
    type_ = pa.list_(pa.struct([A, B]))
    column = table_column(pa.field("s", type_), defaults={"b": "x"}, required=("b",))
    stored = pa.list_(pa.struct([A]))
    assert read_as([[{"a": 1}, None], None, []], stored, column) == [
        [{"a": 1, "b": "x"}, None], None, []
    ]  # fmt: skip
    with pytest.raises(CorruptShardError, match=r"no column 's\[\].b', whose values the table req"):
        table_column(pa.field("s", type_), required=("b",)).check(pa.field("s", stored))


def test_defaults_that_would_fill_the_memory_are_refused():
    column = table_column(pa.field("s", pa.struct([B])), defaults={"b": "x" * (1 << 20)})
    array = pa.array([{"a": 1}] * 2000, pa.struct([A]))
    with pytest.raises(CorruptShardError, match=r"the default of the column 's.b'.* more than"):
        column.read_as(array, pa.field("s", array.type))


@pytest.mark.parametrize(
    ("stored", "wanted", "message"),
    [
        (pa.struct([B]), pa.struct([("b", INT64)]), "'s.b' is string, which cannot be read as int64"),
        (pa.struct([A]), pa.struct([("a", INT32)]), "'s.a' is int64, which cannot be read as int32"),
        (pa.list_(pa.struct([A])), pa.list_(INT64), r"'s\[\]' is struct<a: int64>, which cannot"),
        (INT64, pa.struct([A]), "'s' is int64, which cannot be read as struct<a: int64>"),
        (pa.struct([A]), pa.list_(INT64), "'s' is struct<a: int64>, which cannot be read as list"),
        (pa.map_(INT64, B[1]), pa.map_(INT64, A[1]), "'s.value' is string, which cannot be read"),
        (pa.map_(INT64, A[1]), pa.struct([A]), "'s' is map<int64, int64"),
        (pa.struct([A]), INT64, "'s' is struct<a: int64>, which cannot be read as int64"),
    ],
)  # fmt: skip
def test_other_types_inside_are_refused_by_their_path(stored, wanted, message):
    with pytest.raises(CorruptShardError, match=message):
        table_column(pa.field("s", wanted)).check(pa.field("s", stored))
