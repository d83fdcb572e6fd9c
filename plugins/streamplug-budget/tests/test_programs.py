"""Random programs of loops over batches that vary in size, which do what a model of some lines says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.run.programs import PROGRAM, Kind, Loops, Program, Threaded, programs, write_streams

MICRO_BATCHES = 6


class Budget(Kind):
    """Batches of a limited cost, of which a global batch has six."""

    depends_on_ranks = True

    def options(self):
        return {
            **super().options(),
            "batching_method": "budget",
            "batch_budget": {
                "limit": 40,
                "column": "n",
                "measure": lambda n: 1 + n % 9,
                "micro_batches": MICRO_BATCHES,
            },
        }

    def batch_size(self, ranks):
        return None

    def step(self, ranks):
        return ranks

    def batch_of(self, units):
        return units[0]

    def can_resize(self, done):
        return done % MICRO_BATCHES == 0

    def can_continue(self, done, ranks):
        return done % ranks == 0

    def units_of(self, batches):
        return batches

    def compare(self, units, others):
        assert units == others


LOOPS = {"batches": Loops, "threads": Threaded}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_streams(tmp_path_factory.mktemp("programs"))


@programs(12, 1_000)
@example(steps=[("next", 0, 0), ("save", 0, 0), ("move", 1, 1)], name="batches")
@given(steps=PROGRAM, name=st.sampled_from(sorted(LOOPS)))
def test_loops_over_batches_that_vary_do_what_the_model_says(folders, steps, name):
    Program(Budget(folders), LOOPS, name).run(steps)
