"""The conformance tests of orders fail where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from streamplug_testing import OrderTests

from streamplug.errors import StreamplugError
from streamplug.plan import Planner
from streamplug.plan.elastic import ElasticEpoch
from streamplug.plugin.registry import register, unregister
from streamplug.run.order import Order


class OwnPlanner(Planner):
    """Plans epochs of a class that is wrong in one way."""

    def __init__(self, streams, epoch_class):
        super().__init__(streams)
        self._epoch_class = epoch_class

    def epoch(self, number, segments):
        first = segments[0]
        ordered = self.streams.epoch(number, first.canonical_nodes)
        return self._epoch_class(ordered, first.canonical_nodes, first.global_batch)


class OwnOrder(Order):
    epoch_class = ElasticEpoch

    def planner(self, options, streams, sources):
        return OwnPlanner(streams, self.epoch_class)


class Forgetful(ElasticEpoch):
    """Leaves sample 7 out, and reads another one in its place."""

    def ids(self, world, steps):
        ids, offsets = super().ids(world, steps)
        return np.where(ids == 7, 8, ids), offsets


class Lost(ElasticEpoch):
    """Does not know where sample 7 is read."""

    def where(self, world, sample):
        return [] if sample == 7 else super().where(world, sample)


class Reversed(ElasticEpoch):
    """Finds the places of samples in reverse."""

    def where(self, world, sample):
        return super().where(world, sample)[::-1]


class Shifted(ElasticEpoch):
    """Returns offsets that do not begin at 0."""

    def ids(self, world, steps):
        ids, offsets = super().ids(world, steps)
        return ids, offsets + 1


class Sequential(ElasticEpoch):
    """Returns the steps that come next, whichever are asked for."""

    def ids(self, world, steps):
        return super().ids(world, np.arange(len(steps)))


class Impure(ElasticEpoch):
    """Depends on how often it was asked."""

    calls = 0

    def ids(self, world, steps):
        type(self).calls += 1
        ids, offsets = super().ids(world, steps)
        return (ids + self.calls) % self._ordered.size, offsets


class RankByRank(ElasticEpoch):
    """Has other global batches in other worlds."""

    def ids(self, world, steps):
        ids, offsets = super().ids(world, steps)
        return (ids + world.ranks) % self._ordered.size, offsets


class Halved(ElasticEpoch):
    """Has steps of half of a global batch, which end within an epoch."""

    def steps(self, world):
        return super().steps(world) // 2


def failing(tmp_path, epoch):
    """Return the names of the tests that fail for an epoch."""

    class Own(OwnOrder):
        epoch_class = epoch

    suite = type("Suite", (OrderTests,), {"cls": Own})()
    folder = suite.write_streams(tmp_path / "set")
    register("order", "conformance-tests", Own, replace=True)
    names = []
    try:
        for name in dir(suite):
            if not name.startswith("test_") or name == "test_refuses_an_argument_or_takes_it":
                continue
            try:
                getattr(suite, name)(folder)
            except (AssertionError, StreamplugError):
                names.append(name)
    finally:
        unregister("order", "conformance-tests")
    return names


def test_a_right_order_passes(tmp_path):
    assert failing(tmp_path, ElasticEpoch) == []


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (Forgetful, "every_sample_is_read"),
        (Forgetful, "streams_are_read_by_their_weights"),
        (Lost, "places_are_where_a_sample_is_read"),
        (Reversed, "places_are_where_a_sample_is_read"),
        (Shifted, "batches_are_ids_and_their_offsets"),
        (Sequential, "any_steps_can_be_asked_for"),
        (Sequential, "a_run_continues_where_it_was"),
        (Impure, "is_a_pure_function_and_pickles"),
        (RankByRank, "global_batches_are_the_same_for_every_world_if_it_is_elastic"),
        (Halved, "steps_divide_the_units_of_an_epoch"),
        (Halved, "the_length_is_that_of_the_rank_that_reads_most"),
    ],
)
def test_a_wrong_order_is_found(tmp_path, epoch, found):
    assert f"test_{found}" in failing(tmp_path, epoch)


class Repeated(OwnPlanner):
    def epoch(self, number, segments):
        return super().epoch(0, segments)


class RepeatedOrder(OwnOrder):
    def planner(self, options, streams, sources):
        return Repeated(streams, self.epoch_class)


class Recounted(OwnPlanner):
    def with_global_batch(self, segments, position, global_batch):
        # Begins the epoch anew.
        return [replace(segments[0], global_batch=global_batch)]


class RecountedOrder(OwnOrder):
    def planner(self, options, streams, sources):
        return Recounted(streams, self.epoch_class)


@pytest.mark.parametrize(
    ("order", "found"),
    [
        (RepeatedOrder, "epochs_and_seeds_have_different_orders"),
        (RecountedOrder, "another_global_batch_goes_on_or_is_refused"),
    ],
)
def test_a_wrong_planner_is_found(tmp_path, order, found):
    suite = type("Suite", (OrderTests,), {"cls": order})()
    folder = suite.write_streams(tmp_path / "set")
    register("order", "conformance-tests", order, replace=True)
    try:
        with pytest.raises(AssertionError):
            getattr(suite, f"test_{found}")(folder)
    finally:
        unregister("order", "conformance-tests")
