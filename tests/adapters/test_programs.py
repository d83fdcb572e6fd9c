"""Random programs of loops over loaders, which do what a model of some lines says."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402, TID251

from streamplug import StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from tests.run.loops_model import END, Model  # noqa: E402
from tests.run.programs import (  # noqa: E402
    GLOBAL_BATCH,
    KINDS,
    NUMBERS,
    PROGRAM,
    FailingReads,
    Loops,
    Program,
    Samples,
    Threaded,
    WithWorkers,
    place_of,
    programs,
    write_streams,
)
from tests.start_methods import EVERY_METHOD  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


class Data(FailingReads, StreamingDataset):
    """A data set whose reader fails on request."""


class Loader(Loops):
    """Loops over a loader."""

    data_class = Data
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, data):
        super().__init__(data)
        self.target = StreamingDataLoader(data, **self.options)

    def start(self):
        return iter(self.target)

    def next(self, loop):
        batch = next(loop, None)
        return None if batch is None else batch["n"].tolist()

    def place(self, loop):
        return place_of(loop.state_dict())


def same(sample):
    return sample


class OfSamples(Loader):
    options: ClassVar[dict[str, Any]] = {"transform": same}


class Plain(Loader):
    """Loops over a loader of torch, which reads samples in this process."""

    resizes = False

    def __init__(self, data):
        Loops.__init__(self, data)
        self.loader = DataLoader(data, batch_size=data.batch_size)

    def start(self):
        return PlainLoop(self.loader)

    def place(self, loop):
        return None


class PlainLoop:
    """An iterator of torch, which is left by dropping it."""

    def __init__(self, loader):
        self.batches = iter(loader)

    def __next__(self):
        return next(self.batches)

    def close(self):
        self.batches = iter(())


def with_workers(workers, persistent, method, *, by_sample):
    """Return loops over a loader with workers."""

    class Workers(Loader):
        options: ClassVar[dict[str, Any]] = {
            "num_workers": workers,
            "persistent_workers": persistent,
            "multiprocessing_context": method,
            "transform": same if by_sample else None,
        }

    return Workers


LOOPS = {"loader": Loader, "samples": OfSamples, "torch": Plain}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_streams(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("kind", KINDS)
@programs(12, 1_500)
@given(steps=PROGRAM, name=st.sampled_from(sorted(LOOPS)))
def test_loops_in_this_process_do_what_the_model_says(folders, kind, steps, name):
    others = {"batches": Loops, "threads": Threaded, "by sample": Samples}
    Program(KINDS[kind](folders), {**others, **LOOPS}, name).run(steps)


WORKERS = {
    f"{workers} {method} {persistent} {by_sample}": with_workers(
        workers, persistent, method, by_sample=by_sample
    )
    for workers, method, persistent, by_sample in product(
        (1, 2, 3), EVERY_METHOD, (False, True), (False, True)
    )
}


@programs(12, 500)
@given(steps=PROGRAM, kind=st.sampled_from(sorted(KINDS)), name=st.sampled_from(sorted(WORKERS)))
def test_loops_with_workers_do_what_the_model_says(folders, steps, kind, name):
    WithWorkers(KINDS[kind](folders), {**WORKERS, **LOOPS}, name).run(steps)


class TorchProgram:
    """A program of loops over torch's own loader, whose workers nobody can tell anything.

    Its loops are whole, left when all of their workers have begun, or side by side.
    """

    def __init__(self, kind, options):
        self.kind, self.options = kind, options
        self.persists = options.get("persistent_workers", False)
        self.states = [(kind.open(cls=Data).state_dict(), (0, 0))]
        self._open()

    def _open(self):
        self.data, self.model = self.kind.open(cls=Data), Model(self.kind.units, self.kind.step)
        self.loader = self._load()

    def _load(self, **changes):
        return DataLoader(self.data, batch_size=GLOBAL_BATCH, **{**self.options, **changes})

    def run(self, steps):
        for name, a, b in steps:
            getattr(self, name)(a, b)

    def _next(self, batches, loop):
        expected, batch = self.model.next(loop), next(batches, None)
        assert (END if batch is None else batch["n"].tolist()) == expected
        return batch is not None

    def whole(self, *_):
        batches, loop = iter(self.loader), self.model.begin()
        while self._next(batches, loop):
            pass

    def left(self, count, _):
        """Leave a loop, after a batch of each worker, and save its state."""
        batches, loop = iter(self.loader), self.model.begin()
        for _ in range(max(1, self.options["num_workers"]) + count % 3):
            if not self._next(batches, loop):
                return
        epoch, done = loop.place
        saved = self.data.state_dict(done)
        assert place_of(saved) == (epoch, done)
        self.states.append((saved, (epoch, done)))
        self.model.leave(loop)

    def side_by_side(self, *_):
        pairs = []
        # A loop begins when its workers do, at `iter`.
        for loader in (self.loader, self._load(persistent_workers=False)):
            pairs.append((iter(loader), self.model.begin()))
            self._next(*pairs[-1])
        while any([self._next(*pair) for pair in pairs]):  # noqa: C419 - both
            pass

    def load(self, which, is_other):
        saved, place = self.states[which % len(self.states)]
        if is_other % 2:
            self._open()
        refuses = self.persists and vars(self.loader).get("_iterator") is not None
        self.data.load_state_dict(saved)
        self.model.load(place, (), None)
        if refuses:  # nobody can tell persistent workers
            with pytest.raises(ConfigError, match="create a new DataLoader"):
                list(self.loader)
            self.loader = self._load()


TORCH_STEPS = st.tuples(
    st.sampled_from(["whole", "left", "left", "side_by_side", "load", "load"]), NUMBERS, NUMBERS
)


@programs(6, 200)
@given(
    steps=st.lists(TORCH_STEPS, max_size=8),
    kind=st.sampled_from(["mixed", "one"]),
    workers=st.sampled_from([1, 2, 3]),
    persists=st.booleans(),
    method=st.sampled_from(EVERY_METHOD),
)
def test_loops_over_torchs_loader_do_what_the_model_says(
    folders, steps, kind, workers, persists, method
):
    options = {
        "num_workers": workers,
        "persistent_workers": persists,
        "multiprocessing_context": method,
    }
    TorchProgram(KINDS[kind](folders), options).run(steps)
