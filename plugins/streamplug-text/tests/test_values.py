"""What text can hold is stored as mosaicml-streaming stores it, and what it cannot is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_text import CSVWriter, JSONLWriter, XSVWriter
from streamplug_text.values import printed

from streamplug import StreamingDataset, Writer
from streamplug.errors import ConfigError, EncodeError

COLUMNS = {"id": "int", "text": "str", "ratio": "float"}
SAMPLE = {"id": 0, "text": "naïve", "ratio": 0.5}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": True}, "column 'id': int takes an int, got bool"),
        ({"id": 1.0}, "column 'id': int takes an int, got float"),
        ({"id": 10**5000}, "column 'id': cannot encode (int|list): ValueError"),
        ({"id": np.timedelta64(1, "ns")}, "column 'id': int takes an int, got timedelta64"),
        ({"ratio": 1}, "column 'ratio': float takes a float, got int"),
        ({"text": b"a"}, "column 'text': str takes a str, got bytes"),
        ({"text": "a|b"}, r"column 'text': .* the separator '\|'"),
        ({"text": "a\nb"}, r"column 'text': .* the newline '\\n'"),
        ({"text": "\ud800"}, "column 'text': takes what UTF-8 can hold"),
    ],
)
def test_values_that_could_not_be_read_again_are_refused(tmp_path, row, reason):
    row = {**SAMPLE, **row}
    with XSVWriter(out=tmp_path, columns=COLUMNS, separator="|") as out:
        with pytest.raises(EncodeError, match=reason):
            out.write(row)
        with pytest.raises(EncodeError, match=reason):
            out.write_batch({name: [SAMPLE[name], row[name]] for name in COLUMNS})
        out.write(SAMPLE)
    assert list(StreamingDataset(local=str(tmp_path))) == [SAMPLE]


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize("dtype", ["m8[ns]", "M8[ns]"])
def test_arrays_of_times_are_no_integers(tmp_path, format_, dtype):
    with Writer(out=tmp_path, columns={"id": "int"}, format=format_) as out:
        with pytest.raises(EncodeError, match="column 'id': int takes an int, got"):
            out.write_batch({"id": np.array([1, 2], dtype)})
        out.write_batch({"id": np.array([1, 2])})
    assert [sample["id"] for sample in StreamingDataset(local=str(tmp_path))] == [1, 2]


@pytest.mark.parametrize("texts", [("a:", "b"), ("a", ":b::c"), ("a::b", "c")])
def test_values_that_make_a_separator_with_what_is_beside_them_are_refused(tmp_path, texts):
    with XSVWriter(out=tmp_path, columns={"a": "str", "b": "str"}, separator="::") as out:
        with pytest.raises(EncodeError, match=r"column '[ab]': .* the separator '::'"):
            out.write(dict(zip("ab", texts)))
        out.write({"a": ":a", "b": ":b:"})
    assert StreamingDataset(local=str(tmp_path))[0] == {"a": ":a", "b": ":b:"}


def test_names_with_marks_in_them_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="'a,b': nothing is quoted"):
        CSVWriter(out=tmp_path, columns={"a,b": "int"})
    with pytest.raises(ConfigError, match="UTF-8"):
        CSVWriter(out=tmp_path, columns={"\udc00": "int"})


def test_json_holds_what_python_does(tmp_path):
    columns = {'per cent % "s"': "str", "": "int", "ü": "float"}
    rows = [
        {'per cent % "s"': text, "": number, "ü": ratio}
        for text, number, ratio in [
            ("line\nfeed\0", 2**200, -0.0),
            ("\ud800", -1, float("inf")),
            ("%s 🚂", True, float("-inf")),
            ("", np.int16(7), np.float64(1e-310)),
        ]
    ]
    with JSONLWriter(out=tmp_path, columns=columns) as out:
        for row in rows:
            out.write(row)
    lines = (tmp_path / "shard.00000.json").read_text().splitlines(keepends=True)
    plain = [{**row, "": int(row[""]) if row[""] is not True else True} for row in rows]
    assert lines == [json.dumps(row, sort_keys=True) + "\n" for row in plain]
    dataset = StreamingDataset(local=str(tmp_path))
    assert list(dataset) == [dataset[i] for i in range(4)] == plain
    assert dataset[2][""] is True


BITS = st.integers(0, 2**64 - 1).map(lambda bits: float(np.uint64(bits).view(np.float64)))
ROUND = (
    st.floats(1e-5, 1e17) | st.integers(-(2**60), 2**60).map(float) | st.sampled_from([0.0, -0.0])
)


@given(st.lists(BITS, max_size=5) | st.lists(ROUND, max_size=40))
def test_floats_are_printed_as_python_does(values):
    assert printed(values) in (None, list(map(repr, values)))


def test_nearly_all_floats_are_printed_in_bulk():
    draw = np.random.default_rng(1)
    for values in (draw.random(900) + 1e-4, 10.0 ** draw.uniform(-4, 16, 900), np.zeros(1)):
        assert printed(values.tolist()) == list(map(repr, values.tolist()))
