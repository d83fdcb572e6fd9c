"""Values of every type go into Parquet files and come back, and pyarrow reads the same."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_parquet.format import Parquet
from streamplug_parquet.types import plain, spec_of, type_of
from streamplug_parquet.writer import LISTS_OR_NONE
from streamplug_testing.equality import same

from streamplug import StreamingDataset, Writer
from streamplug.errors import ConfigError
from streamplug.interfaces import Column, WriteSettings

quick = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = {
    f"{sign}int{bits}": st.integers(
        0 if sign else -(2 ** (bits - 1)), 2 ** (bits if sign else bits - 1) - 1
    )
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
VALUES = {
    **numbers,
    "bool": st.booleans(),
    "float16": st.floats(width=16),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": text,
    "binary": st.binary(max_size=5),
    "fixed_size_binary[3]": st.binary(min_size=3, max_size=3),
    "decimal128(9, 2)": st.integers(-(10**8), 10**8).map(lambda n: Decimal(n).scaleb(-2)),
    "list<int16>": st.lists(numbers["int16"], max_size=3),
    "list<bool>": st.lists(st.booleans(), max_size=3),
    "list<string>": st.lists(text, max_size=3),
    "list<list<double>>": st.lists(st.lists(st.floats(allow_nan=False), max_size=2), max_size=3),
    "struct<a: int64, b: list<binary>>": st.fixed_dictionaries(
        {
            "a": st.none() | numbers["int64"],
            "b": st.none() | st.lists(st.binary(max_size=3), max_size=3),
        }
    ),
    "map<string, int64>": st.dictionaries(text, st.none() | numbers["int64"], max_size=3),
    "map<int8, list<map<binary, float>>>": st.dictionaries(
        numbers["int8"],
        st.lists(
            st.none() | st.dictionaries(st.binary(max_size=3), st.floats(width=32), max_size=2),
            max_size=2,
        ),
        max_size=3,
    ),
    "struct<a: map<string, struct<b: bool>>>": st.fixed_dictionaries(
        {
            "a": st.none()
            | st.dictionaries(text, st.fixed_dictionaries({"b": st.booleans()}), max_size=2)
        }
    ),
    "struct<bytes: binary, path: string>": st.fixed_dictionaries(
        {"bytes": st.binary(max_size=3), "path": st.none() | text}
    ),
}
TIMES = {
    "date32": st.dates().map(lambda d: np.datetime64(d, "D")),
    "timestamp[ms]": numbers["int32"].map(lambda n: np.datetime64(n, "ms")),
    "timestamp[us, tz=UTC]": numbers["int32"].map(lambda n: np.datetime64(n, "us")),
    "timestamp[ns]": numbers["int64"]
    .filter(lambda n: n != -(2**63))
    .map(lambda n: np.datetime64(n, "ns")),
    "duration[ms]": numbers["int32"].map(lambda n: np.timedelta64(n, "ms")),
}
FIXED = {
    "fixed_size_list<float>[2]": st.tuples(*[st.floats(width=32)] * 2).map(
        lambda v: np.array(v, "f4")
    ),
    "fixed_size_list<fixed_size_list<uint8>[2]>[3]": st.binary(min_size=6, max_size=6).map(
        lambda b: np.frombuffer(b, "u1").reshape(3, 2)
    ),
}


NUMPY = {"float": np.float32, "double": np.float64, "bool": np.bool_, "float16": np.float16} | {
    name: np.dtype(name).type for name in numbers
}
ALL = {**VALUES, **TIMES, **FIXED}


def batch_of(folder, spec, values, *, together):
    with Writer(
        out=folder, columns={"x": spec, "n": "int64"}, format="parquet:3", exist_ok=True
    ) as out:
        if together:
            out.write_batch({"x": values, "n": np.arange(len(values))})
        else:
            for number, value in enumerate(values):
                out.write({"x": value, "n": number})
    dataset = StreamingDataset(local=str(folder), batch_size=len(values), shuffle=False)
    (batch,) = dataset.batches()
    assert same([dataset[n]["x"] for n in range(len(values))], list(batch["x"]))
    return batch["x"]


def plainly(value):
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("spec", ALL)
def test_values_come_back_whether_given_one_by_one_or_together(spec, tmp_path):
    @quick
    @given(st.lists(ALL[spec], min_size=1, max_size=7), st.booleans())
    def check(values, together):
        found = batch_of(tmp_path, spec, values, together=together)
        assert isinstance(found, np.ndarray) == (spec in NUMPY or spec not in VALUES)
        expected = list(map(NUMPY[spec], values)) if spec in NUMPY else values
        assert same(list(found), expected)
        table = pq.read_table(tmp_path / "shard.00000.parquet")
        assert spec_of(plain(table.schema.field("x").type)) == spec_of(type_of(spec))
        if spec in VALUES:
            found = table["x"].to_pylist(maps_as_pydicts="strict")
            assert same(found, [plainly(value) for value in expected])

    check()


@pytest.mark.parametrize("spec", ALL)
def test_values_count_the_same_however_they_are_given(spec, tmp_path):
    @quick
    @given(st.lists(ALL[spec], max_size=7), st.booleans())
    def check(values, maybe):
        maybe = maybe and (spec not in FIXED or LISTS_OR_NONE)
        values = values + [None] * maybe
        full = f"{spec}?" if maybe else spec
        writer = Parquet().writer(
            [Column("x", full, Parquet.encodings[full])], WriteSettings(None, (), None)
        )
        table, sizes = writer.encode_batch({"x": values})
        _, of_table = writer.encode_batch({"x": table["x"]})
        one_by_one = [writer.encode_pieces({"x": value})[1] for value in values]
        assert sizes.tolist() == of_table.tolist() == one_by_one

    check()


@pytest.mark.parametrize("spec", ALL)
def test_values_may_be_none_where_the_encoding_says_so(spec, tmp_path):
    if spec in FIXED and not LISTS_OR_NONE:
        with pytest.raises(ConfigError, match="26 can"):
            Writer(out=tmp_path, columns={"x": f"{spec}?"}, format="parquet")
        return

    @quick
    @given(st.lists(st.none() | ALL[spec], min_size=1, max_size=7), st.booleans())
    def check(values, together):
        found = batch_of(tmp_path, f"{spec}?", values, together=together)
        assert isinstance(found, list)
        expected = [v.tolist() if spec in FIXED and v is not None else v for v in values]
        assert same(
            found,
            expected
            if spec in TIMES or spec not in NUMPY
            else [plainly(NUMPY[spec](v)) if v is not None else None for v in values],
        )

    check()
