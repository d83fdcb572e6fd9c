"""Random programs of loops over a data set, which do what a model of some lines says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.run.programs import (
    KINDS,
    PROGRAM,
    Loops,
    Program,
    Samples,
    Threaded,
    programs,
    write_streams,
)

LOOPS = {"batches": Loops, "threads": Threaded, "samples": Samples}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_streams(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("kind", KINDS)
@programs(30, 2_000)
@given(steps=PROGRAM, name=st.sampled_from(sorted(LOOPS)))
def test_loops_do_what_the_model_says(folders, kind, steps, name):
    Program(KINDS[kind](folders), LOOPS, name).run(steps)
