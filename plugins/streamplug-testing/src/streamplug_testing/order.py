"""Conformance tests of orders, for plugin authors to subclass."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError, UnknownNameError
from streamplug.plan import Epoch, Place, Planner, checked_batches, rows_of
from streamplug.plugin import register, resolve, unregister
from streamplug.run import Order
from streamplug.stream import Stream
from streamplug.types import World
from streamplug.write import MDSWriter
from streamplug_testing.deviations import ConformanceBase

_GLOBAL_BATCH = 8
_WORLDS = (World(), World(1, 2), World(2, 2), World(4, 2))
_LARGEST_WORLD = _WORLDS[-1]
_REGISTERED_NAME = "conformance-tests"

Batches = list[list[int]]


class OrderTests(ConformanceBase):
    """Conformance tests of an order; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        options: Options of the data set. Its columns are ``n``, the sample id, and ``tokens``, arrays of
            uint16 of 1 to 40 items. A global batch has 8 samples, or 8 batches if they vary in size.
        samples: Number of samples of each of its streams.
        counts_batches: Whether its batches vary in size, so that its planners count batches, not samples.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Order] | None] = None
    options: ClassVar[Mapping[str, Any]] = {}
    samples: ClassVar[Sequence[int]] = (180, 119)
    counts_batches: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        if self.cls is None:
            yield
            return
        register("order", _REGISTERED_NAME, self.cls, replace=True)
        yield
        unregister("order", _REGISTERED_NAME)

    @classmethod
    def order_class(cls) -> type[Order]:
        """Return the class under test."""
        return cls.cls or resolve("order", cls.name)

    @property
    def size(self) -> int:
        """Number of samples of the data set."""
        return sum(self.samples)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return the folder of the streams."""
        return self.write_streams(tmp_path / "set")

    def write_streams(self, folder: Path) -> Path:
        """Write the streams into a folder, and return it."""
        rng = np.random.default_rng(0)
        numbers = iter(range(self.size))
        columns = {"n": "int", "tokens": "ndarray:uint16"}
        for stream, samples in enumerate(self.samples):
            out = str(folder / str(stream))
            with MDSWriter(out=out, columns=columns, size_limit=2000) as writer:
                for n in islice(numbers, samples):
                    writer.write({"n": n, "tokens": np.zeros(rng.integers(1, 41), np.uint16)})
        return folder

    def make_dataset(
        self,
        folder: Path,
        world: World | None = None,
        weights: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> StreamingDataset:
        """Return a data set with this order; `weights` are those of its streams."""
        place = world or World()
        streams = [
            Stream(local=str(folder / str(number)), **weight)
            for number, weight in enumerate(weights or [{}] * len(self.samples))
        ]
        name = _REGISTERED_NAME if self.cls is not None else self.name
        is_elastic = self.order_class().elastic
        defaults: dict[str, Any] = {
            "shuffle": True,
            "num_canonical_nodes": 4,
            "world": place,
            "batching_method" if is_elastic else "partition_algo": name,
        }
        if not self.counts_batches:
            defaults["batch_size"] = _GLOBAL_BATCH // place.ranks
        return StreamingDataset(streams=streams, **{**defaults, **self.options, **options})

    def epochs(self, folder: Path, **options: Any) -> Iterator[tuple[World, Epoch]]:
        """Yield the worlds that the order serves, and the first epoch of a run that begins in each."""
        served = 0
        for world in _WORLDS:
            try:
                plan = _plan(self.make_dataset(folder, world, **options), world)
            except ConfigError:
                continue
            served += 1
            yield world, plan
        assert served, "the order refuses every world"

    # -- what it declares ------------------------------------------------------------

    def test_refuses_an_argument_or_takes_it(self) -> None:
        try:
            made = self.order_class().from_spec("nonsense")
        except ConfigError:
            return
        assert isinstance(made, Order)

    def test_a_planner_counts_what_the_tests_expect(self, folder: Path) -> None:
        planner = self.make_dataset(folder).session.run.planner
        assert isinstance(planner, Planner)
        assert planner.counts_batches == self.counts_batches

    # -- an epoch --------------------------------------------------------------------

    def test_every_sample_is_read(self, folder: Path) -> None:
        for world, plan in self.epochs(folder):
            read = Counter(chain.from_iterable(chain.from_iterable(_rows(plan, world).values())))
            assert set(read) == set(range(self.size)), world

    def test_streams_are_read_by_their_weights(self, folder: Path) -> None:
        weights = [{"repeat": 2}, *[{"repeat": 1}] * (len(self.samples) - 1)]
        for world, plan in self.epochs(folder, weights=weights):
            read = Counter(chain.from_iterable(chain.from_iterable(_rows(plan, world).values())))
            counts = [read[sample] for sample in range(self.size)]
            assert min(counts[: self.samples[0]]) >= 2, world
            assert min(counts[self.samples[0] :]) >= 1, world

    def test_batches_are_ids_and_their_offsets(self, folder: Path) -> None:
        for world, plan in self.epochs(folder):
            steps = np.arange(plan.steps(world))
            count = 0
            for rank in _ranks(world):
                ids, _ = checked_batches(plan, rank, steps, self.size)
                count += len(ids)
            if not self.counts_batches:
                assert count <= len(plan.units)
                assert count == len(plan.units) or not self.order_class().elastic

    def test_steps_divide_the_units_of_an_epoch(self, folder: Path) -> None:
        for world, plan in self.epochs(folder):
            steps = plan.steps(world)
            assert len(plan.units) == steps * plan.units_per_step(world)
            assert len(plan.units) % plan.global_batch == 0
            for step in range(steps):
                assert plan.step_at(world, plan.done_before(world, step)) == step
            ends = plan.done_before(world, 0), plan.done_before(world, steps)
            assert ends == (plan.units.start, plan.units.stop)

    def test_the_length_is_that_of_the_rank_that_reads_most(self, folder: Path) -> None:
        if self.counts_batches:
            pytest.skip("lengths of batches that vary in size are approximate")
        for world, plan in self.epochs(folder):
            most = max(sum(map(len, batches)) for batches in _rows(plan, world).values())
            assert len(self.make_dataset(folder, world)) == most, world

    def test_places_are_where_a_sample_is_read(self, folder: Path) -> None:
        for world, plan in self.epochs(folder):
            places: dict[int, list[Place]] = {sample: [] for sample in range(self.size)}
            for rank, batches in _rows(plan, world).items():
                for step, batch in enumerate(batches):
                    for position, sample in enumerate(batch):
                        places[sample].append(Place(step, rank, position))
            for sample, expected in places.items():
                found = plan.where(world, sample)
                assert sorted(found, key=_sort_key) == sorted(expected, key=_sort_key)
                assert [p.step for p in found] == sorted(p.step for p in found)

    def test_any_steps_can_be_asked_for(self, folder: Path) -> None:
        world = World()
        plan = _plan(self.make_dataset(folder), world)
        whole, last = _rows(plan, world)[0], plan.steps(world) - 1
        steps = [last, 0, last]
        again = rows_of(*plan.ids(world, np.array(steps)))
        assert [row.tolist() for row in again] == [whole[step] for step in steps]
        ids, offsets = plan.ids(world, np.array([], np.int64))
        assert (ids.tolist(), offsets.tolist()) == ([], [0])

    def test_epochs_and_seeds_have_different_orders(self, folder: Path) -> None:
        orders = []
        for seed in (1, 2):
            run = self.make_dataset(folder, shuffle_seed=seed).session.run
            orders += [_rows(run.epoch(number, World()), World())[0] for number in (0, 1, 7)]
        assert all(orders.count(order) == 1 for order in orders)

    def test_is_a_pure_function_and_pickles(self, folder: Path) -> None:
        run = self.make_dataset(folder).session.run
        copy = pickle.loads(pickle.dumps(run.planner))
        for number in (2, 0):  # in any order
            one, other = (
                planner.epoch(number, run.segments(World())) for planner in (run.planner, copy)
            )
            assert _rows(one, World()) == _rows(other, World())
            assert (one.units, one.global_batch) == (other.units, other.global_batch)

    def test_a_pickled_data_set_reads_the_same(self, folder: Path) -> None:
        dataset = self.make_dataset(folder)
        assert _read(pickle.loads(pickle.dumps(dataset))) == _read(dataset)

    # -- in other worlds -------------------------------------------------------------

    def test_global_batches_are_the_same_for_every_world_if_it_is_elastic(
        self, folder: Path
    ) -> None:
        self._skip_unless_elastic()
        expected = None
        for dataset, world in self._in_every_world(folder):
            batches = self._global_batches(_plan(dataset, world), world)
            expected = expected or batches
            assert batches == expected, world

    def _skip_unless_elastic(self) -> None:
        if not self.order_class().elastic:
            pytest.skip("its global batches depend on the world")

    def _in_every_world(
        self, folder: Path, **options: Any
    ) -> Iterator[tuple[StreamingDataset, World]]:
        """Yield a run that began in the largest world, in each world."""
        state = self.make_dataset(folder, _LARGEST_WORLD, **options).state_dict()
        for world in _WORLDS:
            dataset = self.make_dataset(folder, world, **options)
            dataset.load_state_dict(state)
            yield dataset, world

    def _global_batches(self, plan: Epoch, world: World) -> list[Batches]:
        """Return the samples of each global batch, sorted; by batch if these vary in size."""
        rows = _rows(plan, world)
        steps = plan.global_batch // plan.units_per_step(world)  # of a global batch
        global_batches = []
        for first in range(0, plan.steps(world), steps):
            batches = [
                batch for of_rank in rows.values() for batch in of_rank[first : first + steps]
            ]
            if not self.counts_batches:
                batches = [list(chain.from_iterable(batches))]
            global_batches.append(sorted(map(sorted, batches)))
        return global_batches

    # -- states ----------------------------------------------------------------------

    def test_a_run_continues_where_it_was(self, folder: Path) -> None:
        dataset = self.make_dataset(folder)
        epochs = [_read(dataset) for _ in range(3)]
        dataset = self.make_dataset(folder)
        for epoch, following in pairwise(epochs):
            for step, _ in enumerate(dataset.batches(), 1):
                if step in (1, 4, len(epoch)):
                    resumed = self._resume(folder, dataset)
                    assert [_read(resumed), _read(resumed)] == [epoch[step:], following]

    def _resume(self, folder: Path, dataset: StreamingDataset, **options: Any) -> StreamingDataset:
        """Return another data set that resumes from the state of a data set."""
        resumed = self.make_dataset(folder, **options)
        resumed.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        return resumed

    def test_states_of_other_orders_are_refused(self, folder: Path) -> None:
        dataset = self.make_dataset(folder)
        if self.name == "random":
            pytest.importorskip("streamplug_mixing", reason="streamplug-mixing is not installed")
        method = "per_stream" if self.name == "random" else "random"
        other = StreamingDataset(
            streams=[Stream(local=str(folder / str(n))) for n in range(len(self.samples))],
            shuffle=True,
            num_canonical_nodes=4,
            batch_size=_GLOBAL_BATCH,
            batching_method=method,
        )
        with pytest.raises(StateError):
            dataset.load_state_dict(other.state_dict())
        with pytest.raises(StateError):
            other.load_state_dict(dataset.state_dict())

    # -- changes ---------------------------------------------------------------------

    def test_a_curriculum_goes_on_or_is_refused(self, folder: Path) -> None:
        ones = [1] * len(self.samples)
        first = [1, *[0] * (len(ones) - 1)]
        curriculum = {0: ones, 2: first, 5: ones}
        options: dict[str, Any] = {"curriculum": curriculum, "epoch_size": 200}
        try:
            self.make_dataset(folder, **options)
        except (ConfigError, UnknownNameError):
            return
        expected = None
        for dataset, world in self._in_every_world(folder, **options):
            epochs = [
                self._global_batches(dataset.session.run.epoch(number, world), world)
                for number in range(2)
            ]
            expected = expected or epochs
            assert epochs == expected, world
        samples = [
            {n for batch in step for n in batch} for epoch in expected or [] for step in epoch
        ]
        assert max(map(max, samples[2:5])) < self.samples[0]
        assert max(map(max, samples[5:])) >= self.samples[0]
        dataset = self.make_dataset(folder, **options)
        whole = _read(self.make_dataset(folder, **options))
        for step, _ in enumerate(islice(dataset.batches(), 7), 1):
            assert _read(self._resume(folder, dataset, **options)) == whole[step:]

    def test_a_curriculum_reads_streams_pass_after_pass(self, folder: Path) -> None:
        passes = _GLOBAL_BATCH
        curriculum, size = {0: list(self.samples)}, passes * self.size
        try:
            dataset = self.make_dataset(folder, curriculum=curriculum, epoch_size=size)
        except (ConfigError, UnknownNameError):
            return
        read = Counter(chain.from_iterable(_rows(_plan(dataset, World()), World())[0]))
        assert [read[sample] for sample in range(self.size)] == [passes] * self.size

    def test_other_proportions_go_on_or_are_refused(self, folder: Path) -> None:
        weights = [{"proportion": 1 + number} for number in range(len(self.samples))]
        first = [1, *[0] * (len(weights) - 1)]
        before = _read(self.make_dataset(folder, weights=weights))
        dataset = self.make_dataset(folder, weights=weights)
        batches = dataset.batches()
        read = [_ids(next(batches)) for _ in range(3)]
        try:
            dataset.set_proportions(first)
        except (ConfigError, UnknownNameError):
            assert [*read, *map(_ids, batches)] == before  # as if nothing had been asked for
            return
        read.append(_ids(next(batches)))
        resumed = self._resume(folder, dataset, weights=weights)
        rest = [_ids(batch) for batch in batches]
        assert _read(resumed) == rest
        assert read[:3] == before[:3]
        assert max(chain(read[3], *rest)) < self.samples[0]

    def test_another_global_batch_goes_on_or_is_refused(self, folder: Path) -> None:
        before = _read(self.make_dataset(folder))
        dataset = self.make_dataset(folder)
        batches = dataset.batches()
        read = [_ids(next(batches)) for _ in range(3)]
        try:
            dataset.resize(World(), batch_size=2 * _GLOBAL_BATCH)
        except ConfigError:
            assert [*read, *map(_ids, batches)] == before
            return
        read.append(_ids(next(batches)))
        resumed = self._resume(folder, dataset, batch_size=2 * _GLOBAL_BATCH)
        rest = [_ids(batch) for batch in batches]
        assert _read(resumed) == rest
        assert read[:3] == before[:3]
        assert not set(chain(*read[:3])) & set(read[3])
        assert set(chain(*read, *rest)) == set(range(self.size))


def _ids(batch: Mapping[str, Any]) -> list[int]:
    ids: list[int] = np.asarray(batch["n"]).tolist()
    return ids


def _read(dataset: StreamingDataset) -> Batches:
    return [_ids(batch) for batch in dataset.batches()]


def _plan(dataset: StreamingDataset, world: World) -> Epoch:
    """Return the first epoch of a data set, if a rank of the world can read it."""
    plan = dataset.session.run.epoch(0, world)
    plan.ids(world, np.arange(plan.steps(world)))
    return plan


def _ranks(world: World) -> Iterator[World]:
    return (replace(world, rank=rank) for rank in range(world.ranks))


def _rows(plan: Epoch, world: World) -> dict[int, Batches]:
    """Return the samples of the batches of each rank."""
    steps = np.arange(plan.steps(world))
    return {
        rank.rank: [row.tolist() for row in rows_of(*plan.ids(rank, steps))]
        for rank in _ranks(world)
    }


def _sort_key(place: Place) -> tuple[int, int, int]:
    return place.step, place.rank, place.position
