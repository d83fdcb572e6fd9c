"""The format does what every format must."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from streamplug_testing import FormatTests


class TestParquet(FormatTests):
    name = "parquet"
    columns: ClassVar = {
        "text": "string",
        "number": "int64",
        "fixed": "fixed_size_list<float>[2]",
        "maybe": "binary?",
    }

    def rows(self, *, min_size=0):
        row = st.fixed_dictionaries(
            {
                "text": st.text(max_size=9),
                "number": st.integers(-(2**63), 2**63 - 1).map(np.int64),
                "fixed": hnp.arrays("f4", 2, elements=st.floats(width=32)),
                "maybe": st.none() | st.binary(max_size=9),
            }
        )
        return st.lists(row, min_size=min_size, max_size=8)

    def some_rows(self, count=7):
        return [
            {
                "text": f"sample {i}",
                "number": np.int64(i),
                "fixed": np.array([i, -i], np.float32),
                "maybe": bytes([i]) * i,
            }
            for i in range(1, count + 1)
        ]
