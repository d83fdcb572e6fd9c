"""Random programs of loops over the compatibility layer, which do what a model of some lines says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st
from streamplug_mosaic.compat.dataset import StreamingDataset
from streamplug_mosaic.compat.loader import StreamingDataLoader

from tests.run.programs import (
    PROGRAM,
    FailingReads,
    Kind,
    Loops,
    Program,
    WithWorkers,
    programs,
    write_streams,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Data(FailingReads, StreamingDataset):
    """A data set whose reader fails on request."""


class Elastic(Kind):
    """Samples in an order that ranks may share in any number."""

    depends_on_ranks = True

    def options(self):
        return {**super().options(), "partition_algo": "elastic", "shuffle_algo": "py1br"}

    def open(self, ranks=1, rank=0, cls=Data):
        return super().open(ranks, rank, cls)


class OfLoader(Loops):
    """Loops over a loader, which reads batches of the data set."""

    data_class = Data
    options = ()

    def __init__(self, data):
        super().__init__(data)
        options = {"batch_size": data.batch_size, **dict(self.options)}
        self.target = StreamingDataLoader(data, **options)

    def start(self):
        return iter(self.target)

    def next(self, loop):
        batch = next(loop, None)
        return None if batch is None else batch["n"].tolist()


class OfBatches(Loops):
    """Loops over the data set itself."""

    data_class = Data


class OfWorkers(OfLoader):
    options = (("num_workers", 2),)


class OfPersistentWorkers(OfLoader):
    options = (("num_workers", 2), ("persistent_workers", True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_streams(tmp_path_factory.mktemp("programs"))


@programs(12, 1_000)
@given(steps=PROGRAM, name=st.sampled_from(["loader", "batches"]))
def test_loops_in_this_process_do_what_the_model_says(folders, steps, name):
    Program(Elastic(folders), {"loader": OfLoader, "batches": OfBatches}, name).run(steps)


@programs(4, 100)
@given(steps=PROGRAM, name=st.sampled_from(["workers", "persistent"]))
def test_loops_with_workers_do_what_the_model_says(folders, steps, name):
    loops = {"workers": OfWorkers, "persistent": OfPersistentWorkers, "loader": OfLoader}
    WithWorkers(Elastic(folders), loops, name).run(steps)
