"""Random programs of loops over packs: a loop goes on where the one before it ended or was left."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st
from streamplug_packing import PackedSamples

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError
from tests.run.programs import NUMBERS, programs
from tests.start_methods import EVERY_METHOD

process = import_module(f"{__name__.rpartition('.')[0]}.packing_process")
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
SIZE, EPOCHS = 40, 40
STEPS = ["next", "next", "next", "finish", "leave", "save", "load", "move", "look"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=300) as writer:
        writer.write_batch({"n": np.arange(SIZE)})
    return str(out)


@cache
def epochs_of(folder):
    """Return the packs of each of many epochs."""
    packs = samples_of(folder)
    return [[pack["sample_ids"] for pack in packs] for _ in range(EPOCHS)]


def samples_of(folder):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8, num_canonical_nodes=2)
    return PackedSamples(dataset, length=64, size="tokens", open_bins=4, transform=tokens_of)


def tokens_of(sample):
    return {"tokens": np.zeros(sample["n"] * 7 % 40 + 1, np.int32)}


class Program:
    """What runs a program beside the list of packs, of which it has an index."""

    def __init__(self, folder, choices, name):
        self.folder, self.epochs, self.choices = folder, epochs_of(folder), choices
        self.packs = self._open(name)
        self.epoch = self.done = 0
        self.loop, self.states = None, []
        self.save()

    def _open(self, name):
        options = self.choices[name]
        if options is None:
            return samples_of(self.folder)
        return process.make_loader(self.folder, transform=tokens_of, **options)

    def run(self, steps):
        for name, a, b in steps:
            if self.epoch < EPOCHS - 2:
                getattr(self, name)(a, b)
                state = self.packs.state_dict()
                assert (state["epoch"] >= self.epoch) or not self.done

    def next(self, count, _=0):
        for _ in range(1 + count // 3):
            self._next()

    def _next(self):
        if self.loop is None:
            self.loop = iter(self.packs)
        pack, expected = next(self.loop, None), self.epochs[self.epoch]
        if self.done == len(expected):
            assert pack is None
            self.epoch, self.done, self.loop = self.epoch + 1, 0, None
            return False
        assert pack["sample_ids"] == expected[self.done]
        self.done += 1
        return True

    def finish(self, *_):
        while self._next():
            pass

    def leave(self, *_):
        if self.loop is not None:
            self.loop.close()
            self.loop = None

    def look(self, *_):
        """Look at the next pack in a loop of its own, from which the first one goes on."""
        first, self.loop = self.loop, None
        self._next()
        self.loop = first if self.loop is not None else None

    def save(self, *_):
        saved = json.loads(json.dumps(self.packs.state_dict()))
        self.states.append((saved, self.epoch, self.done))

    def load(self, which, _):
        saved, self.epoch, self.done = self.states[which % len(self.states)]
        self.packs.load_state_dict(saved)
        if self.loop is not None:
            with pytest.raises(ConfigError, match="start another loop"):
                next(self.loop)
        self.loop = None

    def move(self, which, how):
        """Go on with a state in another loader."""
        self.leave()
        self.packs = self._open(list(self.choices)[how % len(self.choices)])
        self.load(which, 0)


PROGRAM = st.lists(st.tuples(st.sampled_from(STEPS), NUMBERS, NUMBERS), max_size=25)
IN_PROCESS = {"samples": None, "loader": {}}
WITH_WORKERS = {
    f"{workers} {method} {persists}": {
        "num_workers": workers,
        "multiprocessing_context": method,
        "persistent_workers": persists,
    }
    for workers in (1, 2)
    for method in EVERY_METHOD
    for persists in (False, True)
}


@programs(12, 1_000)
@given(steps=PROGRAM, name=st.sampled_from(sorted(IN_PROCESS)))
def test_loops_in_this_process_go_on_where_the_last_one_was_left(folder, steps, name):
    Program(folder, IN_PROCESS, name).run(steps)


@programs(4, 100)
@given(steps=PROGRAM, name=st.sampled_from(sorted(WITH_WORKERS)))
def test_loops_with_workers_go_on_where_the_last_one_was_left(folder, steps, name):
    Program(folder, {**WITH_WORKERS, **IN_PROCESS}, name).run(steps)
