from __future__ import annotations

import pickle

import numpy as np

from streamplug.interfaces import Column
from streamplug.plugin import make
from streamplug.plugin_kit.merge import merge_values

INT = Column("x", "int", make("encoding", "int"))


def places(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_values_of_all_samples_are_an_array():
    merged = merge_values(
        3, [(places(2, 0), INT, np.array([20, 0])), (places(1), INT, np.array([1]))]
    )
    assert isinstance(merged, np.ndarray)
    assert merged.tolist() == [0, 1, 20]


def test_samples_without_a_value_have_none():
    merged = merge_values(4, [(places(3, 0), INT, np.array([3, 0]))])
    assert merged == [0, None, None, 3]
    assert type(merged[0]) is int
    assert type(pickle.loads(pickle.dumps(merged))) is list


def test_slices_of_values_that_were_merged_before_are_arrays_if_they_have_no_none():
    inner = merge_values(4, [(places(0, 1, 3), INT, np.array([0, 1, 3]))])
    outer = merge_values(
        6, [(places(5, 4), INT, np.array([5, 4])), (places(0, 1, 2, 3), INT, inner)]
    )
    for merged in (inner, outer):
        assert isinstance(merged[:2], np.ndarray)
        assert merged[:2].tolist() == [0, 1]
        assert merged[1:4] == [1, None, 3]
        assert merged[2:3] == [None]
        assert merged[1:1] == []
    assert outer == [0, 1, None, 3, 4, 5]
    assert outer[3:].tolist() == [3, 4, 5]
