"""What a planner of batches that vary in size need not write."""

from __future__ import annotations

import numpy as np

from streamplug.plan import BatchPlanner


class Planner(BatchPlanner):
    def epoch(self, *args, **options):
        raise NotImplementedError

    def identity(self):
        return {}


def test_options_and_substitutes_have_defaults():
    planner, candidates = Planner(), np.array([3, 1, 2])
    assert planner.global_batch is None
    assert planner.options() == {}
    assert planner.order_substitutes(7, candidates) is candidates
