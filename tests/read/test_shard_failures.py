from __future__ import annotations

import pytest

from streamplug.errors import CorruptShardError, NotFound
from streamplug.read import ShardFailures


def attempt(failures, shard, error, *kinds):
    """Return whether a block was run that raises an error, which is raised."""
    ran = []

    def fail():
        with failures.guard(shard, *kinds):
            ran.append(1)
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert str(caught.value) == str(error)
    return bool(ran)


def test_nothing_is_remembered_at_first():
    failures = ShardFailures()
    assert not failures.enabled
    assert attempt(failures, 3, NotFound("a"))
    assert attempt(failures, 3, NotFound("a"))
    assert 3 not in failures


def test_an_error_is_raised_again_until_it_is_forgotten():
    failures = ShardFailures()
    failures.remember()
    error = NotFound("a")
    error.bucket = "b"
    assert attempt(failures, 3, error)
    assert 3 in failures
    with pytest.raises(NotFound, match="a") as caught, failures.guard(3):
        pytest.fail("it is run again")
    assert caught.value is not error
    assert caught.value.bucket == "b"
    with failures.guard(4):
        pass
    failures.remember()
    assert 3 not in failures
    assert attempt(failures, 3, error)


def test_errors_of_other_kinds_are_not_remembered():
    failures = ShardFailures()
    failures.remember()
    for _ in range(2):
        assert attempt(failures, 3, CorruptShardError("a"), (NotFound,))
        assert attempt(failures, 3, KeyboardInterrupt("a"))
    assert attempt(failures, 3, CorruptShardError("a"))
    assert 3 in failures
