from __future__ import annotations

import numpy as np
import pytest

from streamplug.read.assemble import make_samples


@pytest.mark.parametrize("count", range(1, 7))
def test_samples_have_each_column_in_order(count):
    names = [f"c{n}" for n in range(count)]
    columns = [[f"{row} of {name}" for row in range(5)] for name in names]
    samples = make_samples(names, columns)
    assert samples == [{name: f"{row} of {name}" for name in names} for row in range(5)]
    assert all(list(sample) == names for sample in samples)


def test_rows_of_an_array_are_values():
    (first, second) = make_samples(["x"], [np.arange(4).reshape(2, 2)])
    assert first["x"].tolist() == [0, 1]
    assert second["x"].tolist() == [2, 3]
