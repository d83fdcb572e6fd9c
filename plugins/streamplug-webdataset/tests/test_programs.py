"""Random programs of loops over pipelines and their loaders, which do what a model of some lines says."""

from __future__ import annotations

import pytest
import streamplug_webdataset as wds
from hypothesis import example, given
from hypothesis import strategies as st

from tests.run.programs import PROGRAM, Kind, Loops, Program, programs

SIZE = 15


def number(sample):
    return sample["cls"]


class Archives(Kind):
    """Samples of archives, one by one."""

    ranks = (1,)

    def open(self, ranks=1, rank=0, cls=None):
        return (
            wds.WebDataset(self.folders[0], shardshuffle=False).shuffle(SIZE).decode().map(number)
        )

    def step(self, ranks):
        return 1

    def _read(self, changes, place, ranks):
        outputs = self.open()
        session = outputs.dataset.session
        outputs.load_state_dict(session.state_at(*place))
        return list(outputs)


class Outputs(Loops):
    resizes = fails = follows_trainer = False

    def start(self):
        return iter(self.target)

    def next(self, loop):
        output = next(loop, None)
        return None if output is None else [output]


class OfLoader(Outputs):
    options = ()

    def __init__(self, data):
        super().__init__(data)
        self.target = wds.WebLoader(data, batch_size=None, **dict(self.options))


class OfWorkers(OfLoader):
    options = (("num_workers", 2),)


class OfPersistentWorkers(OfLoader):
    options = (("num_workers", 2), ("persistent_workers", True))


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tars")
    with wds.TarWriter(folder / "0.tar") as out:
        for n in range(SIZE):
            out.write({"__key__": f"{n:03d}", "cls": n})
    return [f"{folder}/0.tar"]


OVERTAKEN = [("start", 0, 0), ("side_by_side", 1, 7), ("side_by_side", 1, 2)]
"""A loop ends after another one, which is an epoch ahead, was advanced."""


@programs(20, 1_000)
@example(steps=OVERTAKEN, name="pipeline")
@example(steps=OVERTAKEN, name="loader")
@given(steps=PROGRAM, name=st.sampled_from(["pipeline", "loader"]))
def test_loops_in_this_process_do_what_the_model_says(tars, steps, name):
    Program(Archives(tars), {"pipeline": Outputs, "loader": OfLoader}, name).run(steps)


@programs(5, 100)
@given(steps=PROGRAM, name=st.sampled_from(["workers", "persistent"]))
def test_loops_with_workers_do_what_the_model_says(tars, steps, name):
    loops = {"workers": OfWorkers, "persistent": OfPersistentWorkers, "pipeline": Outputs}
    Program(Archives(tars), loops, name).run(steps)
