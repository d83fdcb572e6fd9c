from __future__ import annotations

import pytest
from streamplug_testing import PartitionTests

from streamplug.plan.partition_algorithm import ElasticPartitionAlgorithm


class TestElastic(PartitionTests):
    name = "elastic"


class CountsOne(ElasticPartitionAlgorithm):
    def partition(self, size, parallelism):
        partition = super().partition(size, parallelism)
        partition.per_rank = 1
        return partition


def test_a_wrong_number_of_samples_is_found():
    tests = type("Tests", (PartitionTests,), {"cls": CountsOne})()
    with pytest.raises(AssertionError):
        tests.test_every_entry_is_read()
