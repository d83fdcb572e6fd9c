from __future__ import annotations

import pytest
from streamplug_ranges.range_failures import FILE_ERRORS, RangeFailures

from streamplug.errors import CorruptShardError, Transient


def test_the_end_of_a_truncated_file():
    failures = RangeFailures()
    failures.set_end(3, 10)  # nothing is remembered at first
    assert failures.end_of(3, 20) == 20
    failures.remember()
    failures.set_end(3, 10)
    assert failures.end_of(3, 20) == 10
    assert failures.end_of(4, 20) == 20
    failures.remember()
    assert failures.end_of(3, 20) == 20


def test_damage_of_samples_is_no_error_of_the_file():
    failures = RangeFailures()
    failures.remember()
    for error in (CorruptShardError("damaged"), Transient("unreachable")):
        with pytest.raises(type(error)), failures.guard(3, FILE_ERRORS):
            raise error
        assert (3 in failures) == isinstance(error, Transient)
