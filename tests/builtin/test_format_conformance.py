from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from streamplug_testing.format import FormatTests

from streamplug.builtin.mds import MDS, MDSHead, MDSLayout, MDSReader
from streamplug.errors import DataError


class TestMDS(FormatTests):
    name = "mds"


class TestMDSOfFixedSize(FormatTests):
    name = "mds"
    columns: ClassVar = {"number": "int", "x": "float64", "fixed": "ndarray:float32:2"}


class TestMDSOfVariableSize(FormatTests):
    name = "mds"
    columns: ClassVar = {
        "text": "str",
        "raw": "bytes",
        "tree": "json",
        "ids": "ndarray:uint16",
    }


class Unordered(MDS):
    """Gives the rows that are asked for in stored order."""

    def open(self, shard, files, columns):
        class Reader(MDSReader):
            def take(self, rows, columns):
                return super().take(np.sort(rows), columns)

        return Reader(shard.samples, files["data"], columns)


class Raw(MDS):
    """Lets exceptions pass that are not ours."""

    def open(self, shard, files, columns):
        if len(files["data"]) < 100:
            raise IndexError("too short")
        return super().open(shard, files, columns)

    def columns(self, entry, make_encoding):
        entry["column_names"][0]
        return super().columns(entry, make_encoding)


class Forgetful(MDS):
    """Cannot be sent to a worker."""

    def __reduce__(self):
        raise TypeError("no pickle")


class Shifted(MDS):
    """Says that samples lie where they do not."""

    def open_header(self, shard, head, columns):
        class Head(MDSHead):
            def byte_ranges(self, rows):
                return super().byte_ranges(rows) - 1

        return Head(shard.samples, head, shard.files["data"].raw.bytes, MDSLayout(columns))


class Trusting(MDS):
    """Takes a head of any length."""

    def open_header(self, shard, head, columns):
        whole = np.zeros(4 * (shard.samples + 2), np.uint8)
        whole[: len(head)] = head
        return super().open_header(shard, whole, columns)


@pytest.mark.parametrize(
    ("faulty", "test", "error"),
    [
        (Unordered, "test_columns_come_in_the_order_asked_for", AssertionError),
        (Raw, "test_truncated_files_are_refused", IndexError),
        (Raw, "test_hostile_entries_do_no_harm", (KeyError, TypeError, IndexError)),
        (Shifted, "test_head_tells_what_the_whole_shard_tells", (AssertionError, DataError)),
        (Trusting, "test_damaged_heads_do_no_harm", pytest.fail.Exception),
        (Forgetful, "test_pickles", TypeError),
    ],
)
def test_the_kit_finds_faults(faulty, test, error):
    tests = type("Tests", (FormatTests,), {"cls": faulty})()
    with pytest.raises(error):
        getattr(tests, test)()
