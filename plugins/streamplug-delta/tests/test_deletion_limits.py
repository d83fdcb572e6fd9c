from __future__ import annotations

import pytest
from pyroaring import BitMap64
from streamplug_delta.deletion_vectors import read_vector
from streamplug_parquet.deletion_vectors import parse_vector

from streamplug.errors import DataError


def test_runs_of_too_many_positions_are_refused_before_they_are_expanded():
    positions = BitMap64()
    positions.add_range(0, 1 << 30)
    positions.run_optimize()
    data = (1681511377).to_bytes(4, "little") + positions.serialize()
    with pytest.raises(ValueError, match="1073741824 positions, more than 134217728"):
        parse_vector(data, 1 << 27)


def test_a_vector_that_ends_after_its_first_bytes_is_refused():
    descriptor = {"storageType": "i", "pathOrInlineDv": "^Bg9^", "sizeInBytes": 4, "cardinality": 1}
    with pytest.raises(DataError, match="deletion vector is damaged: it ends after"):
        read_vector(descriptor, lambda *_: b"")
