"""Conformance tests of batching methods, for plugin authors to subclass."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.plan import Epoch
from streamplug.plugin.registry import register, unregister
from streamplug.run.batching_method import BatchingMethod
from streamplug.types import World
from streamplug.write import MDSWriter
from streamplug_testing.deviations import ConformanceBase

_SAMPLES = 300
_GLOBAL_BATCH = 8
_WORLDS = (World(), World(1, 2), World(2, 2), World(4, 2))
_REGISTERED_NAME = "conformance-tests"

Batches = list[list[int]]


class BatchingTests(ConformanceBase):
    """Conformance tests of a batching method; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        options: Options of the data set. Its columns are ``n``, an int, and ``tokens``, arrays of uint16 of
            1 to 40 items.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[BatchingMethod] | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        if self.cls is None:
            yield
            return
        register("batching", _REGISTERED_NAME, self.cls, replace=True)
        yield
        unregister("batching", _REGISTERED_NAME)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return the folder of a data set."""
        rng = np.random.default_rng(0)
        columns = {"n": "int", "tokens": "ndarray:uint16"}
        with MDSWriter(out=str(tmp_path / "set"), columns=columns, size_limit=2000) as out:
            for n in range(_SAMPLES):
                out.write({"n": n, "tokens": np.zeros(rng.integers(1, 41), np.uint16)})
        return tmp_path / "set"

    def make_dataset(
        self, folder: Path, world: World | None = None, **options: Any
    ) -> StreamingDataset:
        """Return a data set that uses the batching method."""
        defaults = {"shuffle": True, "num_canonical_nodes": 4, "world": world or World()}
        method = _REGISTERED_NAME if self.cls is not None else self.name
        return StreamingDataset(
            local=str(folder), batching_method=method, **{**defaults, **self.options, **options}
        )

    def test_every_sample_is_read(self, folder: Path) -> None:
        batches = _read(self.make_dataset(folder))
        assert {n for batch in batches for n in batch} == set(range(_SAMPLES))

    def test_global_batches_are_the_same_for_every_world(self, folder: Path) -> None:
        begun = self.make_dataset(folder, World(4, 2))
        state = begun.state_dict()
        expected = None
        for world in _WORLDS:
            dataset = self.make_dataset(folder, world)
            dataset.load_state_dict(state)
            batches = _global_batches(_plan(dataset, world), world)
            expected = batches if expected is None else expected
            assert batches == expected, world

    def test_places_are_where_a_sample_is_read(self, folder: Path) -> None:
        world = World(2, 2)
        plan = _plan(self.make_dataset(folder, world), world)
        expected: dict[int, list[tuple[int, int, int]]] = {}
        for rank, rows in _rows(plan, world):
            for (step, position), sample in np.ndenumerate(rows):
                expected.setdefault(int(sample), []).append((step, rank, position))
        for sample in range(_SAMPLES):
            places = [(p.step, p.rank, p.position) for p in plan.where(world, 1, sample)]
            assert sorted(places) == sorted(expected[sample])
            assert [step for step, _, _ in places] == sorted(step for step, _, _ in places)

    def test_any_steps_can_be_asked_for(self, folder: Path) -> None:
        plan = _plan(self.make_dataset(folder), World())
        whole = plan.ids(World(), 1, np.arange(plan.steps))
        steps = np.array([plan.steps - 1, 0, plan.steps - 1])
        for step, row in zip(steps.tolist(), plan.ids(World(), 1, steps)):
            assert row[row >= 0].tolist() == whole[step][whole[step] >= 0].tolist()

    def test_a_run_continues_where_it_was(self, folder: Path) -> None:
        dataset = self.make_dataset(folder)
        whole = _read(dataset)
        dataset = self.make_dataset(folder)
        batches = dataset.batches()
        done = [np.asarray(next(batches)["n"]).tolist() for _ in range(3)]
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = self.make_dataset(folder)
        resumed.load_state_dict(state)
        assert done + _read(resumed) == whole

    def test_a_curriculum_goes_on_where_it_was_or_is_refused(self, folder: Path) -> None:
        options: dict[str, Any] = {"curriculum": {0: [1], 2: [1], 4: [1]}, "epoch_size": 200}
        try:
            dataset = self.make_dataset(folder, World(4, 2), **options)
        except ConfigError:
            return
        state, samples = dataset.state_dict(), range(_SAMPLES)
        expected = None
        for world in _WORLDS:
            dataset = self.make_dataset(folder, world, **options)
            dataset.load_state_dict(state)
            epochs = [
                _global_batches(dataset.session.run.epoch(number, world), world)
                for number in range(3)
            ]
            expected = epochs if expected is None else expected
            assert epochs == expected, world
        counts = Counter(
            n for epoch in expected or [] for step in epoch for batch in step for n in batch
        )
        assert min(counts[n] for n in samples) == max(counts[n] for n in samples) == 2
        whole = _read(self.make_dataset(folder, **options))
        dataset = self.make_dataset(folder, **options)
        for step, _ in enumerate(dataset.batches(), 1):
            resumed = self.make_dataset(folder, **options)
            resumed.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
            assert _read(resumed) == whole[step:]
            if step == 5:
                break

    def test_a_state_of_batches_of_one_size_is_refused(self, folder: Path) -> None:
        fixed = StreamingDataset(local=str(folder), shuffle=True, batch_size=2)
        with pytest.raises(StateError):
            self.make_dataset(folder).load_state_dict(fixed.state_dict())
        with pytest.raises(StateError):
            fixed.load_state_dict(self.make_dataset(folder).state_dict())

    def test_it_pickles(self, folder: Path) -> None:
        dataset = self.make_dataset(folder)
        assert _read(pickle.loads(pickle.dumps(dataset))) == _read(dataset)


def _read(dataset: StreamingDataset) -> Batches:
    return [np.asarray(batch["n"]).tolist() for batch in dataset.batches()]


def _plan(dataset: StreamingDataset, world: World) -> Epoch:
    return dataset.session.run.epoch(0, world)


def _rows(plan: Epoch, world: World) -> Iterator[tuple[int, Any]]:
    """Yield each rank and the samples of its batches, shape ``[steps, n]``, -1 at the end of short ones."""
    for rank in range(world.ranks):
        yield rank, plan.ids(replace(world, rank=rank), 1, np.arange(plan.steps))


def _global_batches(plan: Epoch, world: World) -> list[Batches]:
    """Return the batches of each global batch, sorted."""
    tables = [rows for _, rows in _rows(plan, world)]
    per_rank = _GLOBAL_BATCH // world.ranks
    return [
        sorted(
            sorted(row[row >= 0].tolist())
            for table in tables
            for row in table[first : first + per_rank]
        )
        for first in range(0, plan.steps, per_rank)
    ]
