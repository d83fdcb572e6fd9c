from __future__ import annotations

import numpy as np
import pytest

from streamplug.interfaces import Column, ShardReader
from streamplug.plugin.registry import make


class Squares(ShardReader):
    def __len__(self):
        return 9

    def take(self, rows, columns):
        return [rows**2, [str(row) for row in rows.tolist()]][: len(columns)]


COLUMNS = [Column("n", "int", make("encoding", "int")), Column("s", "str", make("encoding", "str"))]


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:1], []])
def test_a_reader_needs_no_way_to_read_single_samples(columns):
    expected = dict(list({"n": 9, "s": "3"}.items())[: len(columns)])
    reader = Squares()
    for sample in (reader.row(3, columns), reader.row_reader(columns)(3)):
        assert sample == expected
        assert not any(isinstance(value, np.generic) for value in sample.values())
