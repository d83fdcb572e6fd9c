"""Random programs of loops over batches that others read, which do what a model of some lines says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_ray.remote_batches import remote_batches, take

from tests.run.programs import KINDS, PROGRAM, Loops, Program, programs, write_streams


class Remote(Loops):
    """Loops whose batches have been asked for ahead, so that they end where the run changes."""

    follows = False

    def start(self):
        ask = lambda request: request.ids  # noqa: E731
        return remote_batches(self.data, ask, lambda ids: take(self.data, ids), ahead=3)

    def next(self, loop):
        batch = next(loop, None)
        return None if batch is None else np.asarray(batch["n"]).tolist()


LOOPS = {"remote": Remote, "batches": Loops}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_streams(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("kind", KINDS)
@programs(12, 500)
@given(steps=PROGRAM, name=st.sampled_from(sorted(LOOPS)))
def test_loops_do_what_the_model_says(folders, kind, steps, name):
    Program(KINDS[kind](folders), LOOPS, name).run(steps)
