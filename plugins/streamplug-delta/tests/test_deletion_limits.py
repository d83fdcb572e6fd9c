from __future__ import annotations

import pytest
from pyroaring import BitMap64
from streamplug_parquet.deletion_vectors import parse_vector


def test_runs_of_too_many_positions_are_refused_before_they_are_expanded():
    positions = BitMap64()
    positions.add_range(0, 1 << 30)
    positions.run_optimize()
    data = (1681511377).to_bytes(4, "little") + positions.serialize()
    with pytest.raises(ValueError, match="1073741824 positions, more than 134217728"):
        parse_vector(data, 1 << 27)
