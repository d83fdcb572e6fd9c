from __future__ import annotations

import numpy as np
import pytest

from streamplug.errors import ConfigError
from streamplug.plan import ElasticPartition, Parallelism, PartitionAlgorithm
from streamplug.plugin import make
from streamplug.types import World


class RoundRobin(PartitionAlgorithm):
    """An algorithm of its own for the order, with the default for everything else."""

    def partition(self, size, parallelism):
        return ElasticPartition(size, 1, parallelism.world, parallelism.batch)


def test_the_elastic_algorithm_splits_an_order_as_its_partition_does():
    world, steps = World(2, 2), np.arange(3)
    partition = make("partition", "elastic").partition(20, Parallelism(2, world, 2))
    expected = ElasticPartition(20, 2, world, 2)
    assert partition.entries(world, 2, steps).tolist() == expected.entries(world, 2, steps).tolist()


def test_an_algorithm_without_batching_refuses_all_methods_but_random():
    with pytest.raises(ConfigError, match="batching_method='stratified': RoundRobin has only"):
        RoundRobin().combine_streams("stratified", [], Parallelism(1, World(), 2), 0)
    assert RoundRobin().partition(10, Parallelism(1, World(), 2)).steps == 5


def test_an_argument_is_refused():
    with pytest.raises(ConfigError, match="takes no argument, got 'x'"):
        make("partition", "elastic:x")
    assert make("partition", "elastic").elastic
