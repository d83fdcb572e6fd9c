"""The text formats do what every format must."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from streamplug_testing import FormatTests
from streamplug_text import split
from streamplug_text.xsv import XSV

IS_PLAIN = {
    "test_looking_through_a_file_finds_its_samples": "a file without an index is read by a format of its own"
}
HEADER_COUNTS = {
    "test_size_of_a_shard_is_known_beforehand": "as in mosaicml-streaming, the header does not count"
}


@pytest.fixture(autouse=True, scope="module")
def looks_at_all_at_once():
    """A test takes few samples, and those are otherwise read one by one in any case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "_MIN_BATCH_SAMPLES", 0)
        yield


class TextTests(FormatTests):
    columns: ClassVar[dict[str, str]] = {"text": "str", "number": "int", "ratio": "float"}
    characters = st.characters(exclude_categories=["Cs"])

    def rows(self, *, min_size=0):
        row = st.fixed_dictionaries(
            {
                "text": st.text(self.characters, max_size=9),
                "number": st.integers(-(2**80), 2**80),
                "ratio": st.floats(),
            }
        )
        return st.lists(row, min_size=min_size, max_size=8)

    def some_rows(self, count=7):
        return [
            {"text": f"sample {i}", "number": i, "ratio": 1.1**i - 1} for i in range(1, count + 1)
        ]


class TestJSONL(TextTests):
    deviations = IS_PLAIN
    name = "json"


class XSVTests(TextTests):
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t,:")


class TestCSV(XSVTests):
    deviations = HEADER_COUNTS | IS_PLAIN
    name = "csv"


class TestTSV(XSVTests):
    deviations = HEADER_COUNTS | IS_PLAIN
    name = "tsv"


class TestXSV(XSVTests):
    deviations = HEADER_COUNTS | IS_PLAIN
    name = "xsv"

    def format(self):
        return XSV(":")


class TestLongMarks(XSVTests):
    deviations = HEADER_COUNTS | {
        "test_looking_through_a_file_finds_its_samples": "files without an index need a short separator"
    }
    cls = XSV

    def format(self):
        return XSV("::", "\r\n")
