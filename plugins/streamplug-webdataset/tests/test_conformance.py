from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from streamplug_testing import EncodingTests, FormatTests
from streamplug_testing.samples import VALUES

from streamplug.errors import ConfigError
from streamplug.plugin import make

KEY = "__key__"


class TestWebDataset(FormatTests):
    name = "webdataset"
    columns: ClassVar = {
        KEY: "str",
        "text": "str",
        "number": "int",
        "values.seg": "ndarray",
        "fixed": "ndarray:float32:2",
    }

    def rows(self, *, min_size=0):
        plain = {name: VALUES[spec] for name, spec in self.columns.items() if name != KEY}
        letters = st.characters(exclude_characters="./_", exclude_categories=["Cc", "Cs"])
        keys = st.lists(
            st.text(letters, min_size=1, max_size=70), min_size=min_size, max_size=8, unique=True
        )
        row = st.fixed_dictionaries(plain)
        return keys.flatmap(
            lambda keys: st.lists(row, min_size=len(keys), max_size=len(keys)).map(
                lambda rows: [{KEY: key, **row} for key, row in zip(keys, rows)]
            )
        )

    def some_rows(self, count=7):
        rows = super().some_rows(count)
        return [{**row, KEY: f"folder.d/{i:04d}"} for i, row in enumerate(rows)]


class TestNpy(EncodingTests):
    spec = "npy"
    wrong = ("text", 1, object(), [1, 2], np.ma.array([1, 2], mask=[False, True]))
    refused = (
        b"\x93NUMPX",
        np.array([object()]),
        np.zeros(2, "V0"),
        np.zeros(2, []),
        np.zeros(2, [(f"field {n}", "i1") for n in range(1000)]),
    )

    def values(self):
        shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
        return hnp.arrays(st.sampled_from(("?", "<i4", "<f8", "<c8", "<U3", "S2")), shapes)


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0:UserWarning")
@pytest.mark.parametrize("name", ["plain", "é", "Ω", "\N{GRINNING FACE}\\'\"Ω"])
def test_fields_of_arrays_may_have_any_names(name):
    array = np.array([(1, 2.5), (3, 4.5)], [(name, "<i4"), ("b", "<f8")])
    for spec, value in (("npy", array), ("npz", {"a": array})):
        encoding = make("encoding", spec)
        decoded = encoding.decode(memoryview(encoding.encode(value)))
        decoded = decoded["a"] if spec == "npz" else decoded
        assert decoded.dtype == array.dtype
        assert decoded.tolist() == array.tolist()


class TestNpz(EncodingTests):
    spec = "npz"
    wrong = ("text", 1, object(), {1: 2})
    refused = (
        b"nothing",
        {"a": np.array([object()])},
        {"a": [[1], 2]},
        {"a": np.zeros(2, "V0")},
        {"a": np.ma.array([1, 2], mask=[False, True])},
        {"\0": np.ones(1)},
        {"\ud800": np.ones(1)},
        {"a" * 65536: np.ones(1)},
    )

    def values(self):
        arrays = hnp.arrays(st.sampled_from(("<i4", "<f8")), st.just((2, 3)))
        return st.dictionaries(st.sampled_from("abc"), arrays, max_size=3)


class TestTen(EncodingTests):
    spec = "ten"
    wrong = ("text", 1, object(), np.zeros(2), [1], [np.array(["a"])], [np.zeros(1, "?")])
    refused = ([np.zeros((1,) * 10)], [np.ma.array([1, 2], mask=[False, True])])

    def values(self):
        kinds = st.sampled_from(("<f2", "<f4", "<i8", "<u4", "<u1"))
        shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
        return st.lists(hnp.arrays(kinds, shapes), max_size=3)


class TestCbor(EncodingTests):
    spec = "cbor"
    wrong = (object(),)

    @pytest.fixture(autouse=True)
    def _needs_cbor2(self):
        pytest.importorskip("cbor2")

    def values(self):
        numbers = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False)
        plain = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.binary(max_size=5)
        nested = st.lists(plain, max_size=3) | st.dictionaries(
            st.text(max_size=3), plain, max_size=3
        )
        return plain | nested


class TestGzipped(EncodingTests):
    spec = "gzipped:json"
    bad_arguments = ("", "gzipped:gzipped:json")
    wrong = (object(), {1, 2})

    def values(self):
        return VALUES["json"]


@pytest.mark.parametrize("spec", ["gzipped", "gzipped:", "gzipped:gzipped:gzipped:json"])
def test_gzipped_needs_one_encoding_inside(spec):
    with pytest.raises(ConfigError):
        make("encoding", spec)


def test_what_is_unsafe_stays_so_when_compressed():
    assert make("encoding", "gzipped:pkl").unsafe
    assert make("encoding", "pth").unsafe
    assert not make("encoding", "gzipped:json").unsafe


@pytest.mark.parametrize(
    "spec", ["webdataset:cooked", "webdataset:raw=1", "webdataset:mtime=x", "webdataset:mtime=-1"]
)
def test_unknown_options_are_refused(spec):
    with pytest.raises(ConfigError, match="is none of raw, pil, idx, case, last_dot, files, mtime"):
        make("format", spec)
