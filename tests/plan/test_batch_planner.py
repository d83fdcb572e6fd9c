"""What a planner of batches that vary in size need not write."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.errors import ConfigError
from streamplug.plan import (
    BatchPlanner,
    Curriculum,
    CurriculumEpochs,
    ElasticPartitionAlgorithm,
    EpochConfig,
    Mixture,
    ShardSampler,
)
from streamplug.plan import Planner as RunPlanner
from streamplug.types import World


class Planner(BatchPlanner):
    def epoch(self, *args, order_key, **options):
        return order_key

    def identity(self):
        return {}


def test_options_and_substitutes_have_defaults():
    planner, candidates = Planner(), np.array([3, 1, 2])
    assert planner.micro_batches is None
    assert planner.options() == {}
    assert planner.order_substitutes(7, candidates) is candidates


class Epochs(CurriculumEpochs):
    def __init__(self, *arguments):
        self.arguments = arguments

    def epoch(self, number, world):
        return number, world

    def steps_before(self, number, most):
        return min(7 * number, most)


class CurriculumPlanner(Planner):
    def curriculum_epochs(self, curriculum, make_streams, first_ids, **options):
        return Epochs(curriculum, make_streams(), first_ids, options)


CONFIG = EpochConfig(7, 1, 10, "elastic", 1, "budget", 1, 8)


def plan(mixture, batches, algorithm=None):
    return RunPlanner(
        np.array([0, 10, 15]),
        [0, 1, 2],
        mixture,
        algorithm or NoShuffle(),
        ElasticPartitionAlgorithm(),
        shuffled=False,
        batches=batches,
    )


def test_a_curriculum_is_planned_by_streams():
    curriculum = Curriculum.parse({0: [1, 1]}, [10, 5], 15)
    planner = plan(curriculum, CurriculumPlanner())
    assert planner.epoch(3, World(), 1, CONFIG) == (3, World())
    given, streams, first_ids, options = planner.curriculum_epochs(CONFIG).arguments
    assert (given, first_ids) == (curriculum, [0, 10, 15])
    # Pass after pass.
    assert streams[1].samples(np.arange(7)).tolist() == [10, 11, 12, 13, 14, 10, 11]
    assert {name: options[name] for name in ("canonical_nodes", "micro_batches", "seed")} == {
        "canonical_nodes": 1,
        "micro_batches": 8,
        "seed": 7,
    }


class OtherShuffle(NoShuffle):
    def __init__(self, option):
        self.option = option


@pytest.mark.parametrize("has_curriculum", [True, False])
def test_the_key_of_an_order_has_the_shuffle_and_its_options(has_curriculum):
    curriculum = Curriculum.parse({0: [1, 1]}, [10, 5], 15)
    mixture = Mixture((10, 5), "balanced", 1, ShardSampler())

    def key(algorithm):
        if not has_curriculum:
            return plan(mixture, Planner(), algorithm).epoch(0, World(), 1, CONFIG)
        planner = plan(curriculum, CurriculumPlanner(), algorithm)
        return planner.curriculum_epochs(CONFIG).arguments[-1]["order_key"]

    algorithms = NoShuffle(), OtherShuffle(1), OtherShuffle(2)
    assert len({key(algorithm) for algorithm in algorithms}) == 3
    assert key(OtherShuffle(2)) == key(OtherShuffle(2))


def test_runs_without_a_curriculum_have_no_epochs_of_one():
    mixture = Mixture((10, 5), "balanced", 1, ShardSampler())
    assert plan(mixture, CurriculumPlanner()).curriculum_epochs(CONFIG) is None


def test_a_method_without_curricula_says_so():
    curriculum = Curriculum.parse({0: [1, 1]}, [10, 5], 15)
    with pytest.raises(ConfigError, match="has no curriculum="):
        plan(curriculum, Planner()).epoch(0, World(), 1, CONFIG)
