"""Conformance tests of partition algorithms, for plugin authors to subclass."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import product
from typing import ClassVar

import numpy as np
import pytest

from streamplug.errors import ConfigError
from streamplug.plan import Parallelism, Partition, PartitionAlgorithm, Place
from streamplug.plugin import resolve
from streamplug.types import Int64, World
from streamplug_testing.deviations import ConformanceBase

_SIZES = (1, 7, 64, 500)
_WORLDS = (World(), World(ranks_per_node=4), World(nodes=2, ranks_per_node=2), World(nodes=4))
_GLOBAL_BATCH = 8
_CANONICAL_NODES = 4


class PartitionTests(ConformanceBase):
    """Conformance tests of a partition algorithm; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[PartitionAlgorithm] | None] = None

    def algorithm(self) -> PartitionAlgorithm:
        """Return a new instance of the algorithm under test."""
        cls = self.cls if self.cls is not None else resolve("partition", self.name)
        made: PartitionAlgorithm = cls.from_spec(None)
        return made

    def test_refuses_an_argument_or_takes_it(self) -> None:
        try:
            made = type(self.algorithm()).from_spec("nonsense")
        except ConfigError:
            return
        assert isinstance(made, PartitionAlgorithm)

    def test_every_entry_is_read(self) -> None:
        for size, world, partition in self._partitions():
            entries = np.stack([batches for _, batches in _batches(partition, world)])
            assert set(entries[entries >= 0].tolist()) == set(range(size))
            # Ranks may read less than the one that reads most.
            assert np.sum(entries >= 0, axis=(1, 2)).max() == partition.per_rank

    def test_places_are_where_an_entry_is_read(self) -> None:
        for size, world, partition in self._partitions():
            places: dict[int, list[Place]] = {entry: [] for entry in range(size)}
            for rank, batches in _batches(partition, world):
                for (step, position), entry in np.ndenumerate(batches):
                    if entry >= 0:
                        places[int(entry)].append(Place(step, rank.rank, position))
            for entry, expected in places.items():
                places_of_entry = partition.places(world, _batch(world), entry)
                assert sorted(places_of_entry, key=_sort_key) == sorted(expected, key=_sort_key)
                assert [place.step for place in places_of_entry] == sorted(
                    place.step for place in places_of_entry
                )

    def test_any_steps_can_be_asked_for(self) -> None:
        for _, world, partition in self._partitions():
            last = partition.steps - 1
            steps = np.array([last, 0, last], np.int64)
            whole = partition.entries(world, _batch(world), np.arange(partition.steps))
            assert np.array_equal(partition.entries(world, _batch(world), steps), whole[steps])

    def test_is_a_pure_function_and_pickles(self) -> None:
        copy = pickle.loads(pickle.dumps(self.algorithm()))
        for size, world, partition in self._partitions():
            again = copy.partition(size, _parallelism(world))
            assert (again.steps, again.per_rank) == (partition.steps, partition.per_rank)
            for (_, one), (_, other) in zip(_batches(partition, world), _batches(again, world)):
                assert np.array_equal(one, other)

    def test_global_batches_are_the_same_for_every_world_if_it_is_elastic(self) -> None:
        if not self.algorithm().elastic:
            pytest.skip("its global batches depend on the world")
        expected: dict[int, list[list[int]]] = {}
        for size, world, partition in self._partitions():
            batches = np.concatenate([rows for _, rows in _batches(partition, world)], axis=1)
            global_batches = [sorted(batch) for batch in batches.tolist()]
            assert expected.setdefault(size, global_batches) == global_batches

    def _partitions(self) -> Iterator[tuple[int, World, Partition]]:
        """Yield a size, a world and the partition for each case that the algorithm supports."""
        supported = 0
        for size, world in product(_SIZES, _WORLDS):
            try:
                partition = self.algorithm().partition(size, _parallelism(world))
            except ConfigError:
                continue
            supported += 1
            yield size, world, partition
        assert supported, "the algorithm refuses every world"


def _batch(world: World) -> int:
    return _GLOBAL_BATCH // world.ranks


def _parallelism(world: World) -> Parallelism:
    return Parallelism(_CANONICAL_NODES, world, _batch(world))


def _batches(partition: Partition, world: World) -> Iterator[tuple[World, Int64]]:
    """Yield each rank and the entries of its batches, shape ``[steps, batch]``."""
    for number in range(world.ranks):
        rank = World(nodes=world.nodes, ranks_per_node=world.ranks_per_node, rank=number)
        batches = partition.entries(rank, _batch(world), np.arange(partition.steps))
        assert batches.shape == (partition.steps, _batch(world))
        yield rank, batches


def _sort_key(place: Place) -> tuple[int, int, int]:
    return place.step, place.rank, place.position
