"""Whole epochs are those of mosaicml-streaming: every option of the order, every world, and resumption.

Both sides are data sets as a program makes them, by the same arguments and in the same environment. Of
theirs, each rank would ask for its epoch by `generate_work`; ours says it by `explain`.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
import streamplug_mosaic as names

from streamplug import MDSWriter
from streamplug.errors import ConfigError, StreamplugError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of sets that are small or empty

BATCHINGS = ["random", "stratified", "per_stream", "device_per_stream"]
SHUFFLES = ["naive", "py1s", "py2s", "py1br", "py1e"]
EACH = 250
"""Orders of each batching method: 1,000 in all, each with two states."""


class Memory:
    """Stands in for their shared memory: a thousand data sets would leave as many segments and files."""

    blocks: ClassVar[dict[str, bytearray]] = {}

    def __init__(self, name=None, create=None, size=0, auto_cleanup=True):
        del auto_cleanup
        if create is False and name not in self.blocks:
            raise FileNotFoundError(name)
        self.buf = memoryview(self.blocks.setdefault(name, bytearray(size)))


@pytest.fixture(scope="module")
def theirs(mosaic):
    """Return their modules, which keep to this process."""
    base = mosaic.base
    with pytest.MonkeyPatch.context() as patch:
        for module in (base.dataset, base.shared.array, base.shared.prefix):
            patch.setattr(module, "SharedMemory", Memory)
        # Ranks that are not there cannot be waited for.
        patch.setattr(base.dataset, "maybe_init_dist", lambda: False)
        yield mosaic


@dataclass(frozen=True)
class Place:
    """A world, and how it is read there.

    Attributes:
        nodes: Number of nodes.
        local: Ranks of each.
        workers: Workers of each rank.
        replication: Ranks in a row that get the same, or None.
        batch: Samples per batch of a rank.
    """

    nodes: int
    local: int
    workers: int
    replication: int | None
    batch: int

    @property
    def groups(self):
        """Number of ranks that get something of their own."""
        return self.nodes * self.local // (self.replication or 1)

    @property
    def total(self):
        """Samples of a global batch."""
        return self.groups * self.batch

    @contextmanager
    def entered(self):
        """Let the environment describe the world."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANK", "0")
            patch.setenv("WORLD_SIZE", str(self.nodes * self.local))
            patch.setenv("LOCAL_WORLD_SIZE", str(self.local))
            yield


@dataclass(frozen=True)
class Case:
    """A run: its streams, what is asked of the order, and where it is read, first and then.

    Attributes:
        shards: Sizes of the shards of each stream.
        weights: Weight of each stream.
        options: Arguments of a data set; those that are left out have their defaults.
        epoch: Which epoch is looked at.
        first: Where the run begins.
        second: Where it continues.
        stops: Which parts of the epoch are done when it goes to the second world, and back to the first.
    """

    shards: list[list[int]]
    weights: list[dict[str, float]]
    options: dict[str, Any]
    epoch: int
    first: Place
    second: Place
    stops: tuple[float, float]


def _divisors(number):
    return [each for each in range(1, number + 1) if number % each == 0]


def _place(draw, total=None):
    """Draw a world; with a `total`, one whose global batch is of so many samples."""
    groups = draw.randint(1, 8) if total is None else draw.choice(_divisors(total)[:6])
    replication = draw.choice([None, None, 1, 2, 2, 3, 4])
    ranks = groups * (replication or 1)
    nodes = draw.choice([each for each in _divisors(ranks) if each <= 6])
    batch = draw.randint(1, 5) if total is None else total // groups
    return Place(nodes, ranks // nodes, draw.randint(1, 3), replication, batch)


def _weights(draw, count):
    """Draw the weights of some streams, and the size of an epoch or None."""
    kind = draw.choice(["shares", "equal", "none", "absolute"])
    size = None if kind == "absolute" else draw.choice([None, draw.randint(1, 300)])
    one = {
        "shares": lambda: {"proportion": draw.uniform(0.05, 1)},
        "equal": lambda: {"proportion": 1},  # whose remainders are equal
        "none": dict,
        "absolute": lambda: draw.choice(
            [{}, {"repeat": draw.uniform(0.1, 2.5)}, {"choose": draw.randint(1, 200)}]
        ),
    }[kind]
    return [one() for _ in range(count)], size


ORDER = {
    "shuffle": [True, True, False],
    "shuffle_algo": SHUFFLES,
    "shuffle_seed": range(1 << 31),
    "shuffle_block_size": range(20, 300),
    "num_canonical_nodes": [1, 2, 3, 4, 6, 8],
    "partition_algo": ["orig", "relaxed"],
    "sampling_method": ["balanced", "fixed"],
    "sampling_granularity": [1, 3, 10],
}
"""Options of which any may be left out."""


def case_of(batching, seed):
    """Return a case: the same for the same seed."""
    draw = Random(seed)
    shards = [
        [draw.randint(1, 40) for _ in range(draw.randint(1, 5))] for _ in range(draw.randint(1, 4))
    ]
    weights, epoch_size = _weights(draw, len(shards))
    options = {name: draw.choice(values) for name, values in ORDER.items() if draw.random() < 0.7}
    if epoch_size is not None:
        options["epoch_size"] = epoch_size
    if batching != "random" or draw.random() < 0.5:
        options["batching_method"] = batching
    first = _place(draw)
    second = _place(draw, first.total)
    stops = (draw.random(), draw.random())
    return Case(shards, weights, options, draw.randint(0, 4), first, second, stops)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that makes the directories of streams: nothing but their indexes."""
    folder = tmp_path_factory.mktemp("sets")
    with MDSWriter(out=folder / "one", columns={"id": "int"}) as writer:
        writer.write({"id": 1})
    index = json.loads((folder / "one" / "index.json").read_text())

    def make(shards):
        found = []
        for number, sizes in enumerate(shards):
            place = folder / "-".join(map(str, [number, *sizes]))
            found.append(str(place))
            if place.exists():
                continue
            place.mkdir()
            entries = [
                {
                    **index["shards"][0],
                    "samples": size,
                    "raw_data": {"basename": f"shard.{at:05}.mds", "bytes": 999, "hashes": {}},
                }
                for at, size in enumerate(sizes)
            ]
            (place / "index.json").write_text(json.dumps({**index, "shards": entries}))
        return found

    return make


class Theirs:
    """A data set of mosaicml-streaming on its first rank, whose workers ask for epochs.

    Raises:
        ValueError: If they refuse it.
    """

    def __init__(self, mosaic, place, state=None, cls=None, **options):
        self._mosaic, self._place = mosaic, place
        Memory.blocks.clear()
        self.data = (cls or mosaic.StreamingDataset)(batch_size=place.batch, **options)
        if state is not None:
            self.data.load_state_dict(state)

    def epoch(self, number):
        """Return the samples of each rank's batches of an epoch, and at which step they begin."""
        ranks = self.data._parallel_rank_world
        number, done = self.data._resume(ranks, number)
        self.data.next_epoch = number + 1
        workers = self._place.workers
        world = self._mosaic.base.world.World(ranks.num_nodes, ranks.ranks_per_node, workers, 0)
        method = self.data.batching_method
        work = self._mosaic.base.batching.generate_work(method, self.data, world, number, done)
        batches = work.transpose(3, 2, 0, 1, 4).reshape(-1, ranks.num_ranks, work.shape[-1])
        steps = [[[i for i in ids if i >= 0] for ids in step] for step in batches.tolist()]
        return done // self._place.total, _without_ends(steps)

    def state(self, samples):
        """Return the state after so many samples of the epoch that was begun last."""
        return self.data.state_dict(samples, True)


class Ours:
    """The same of streamplug."""

    def __init__(self, place, state=None, cls=names.StreamingDataset, **options):
        self.data = cls(batch_size=place.batch, **options)
        self._groups = place.groups
        if state is not None:
            self.data.load_state_dict(state)

    def epoch(self, number, first=0):
        """Return the samples of each rank's batches of an epoch from a step on."""
        steps = []
        with suppress(ConfigError):  # a step behind the last
            for step in range(first, 1 << 20):
                ranks = [[] for _ in range(self._groups)]
                for use in self.data.explain(step, epoch=number):
                    ranks[use.rank].append(use.sample)
                steps.append(ranks)
        return _without_ends(steps)

    def state(self, samples):
        """Return the state after so many samples of the epoch that it is in."""
        return json.loads(json.dumps(self.data.state_dict(samples, True)))


def _without_ends(steps):
    """Return steps without those at the end in which no rank has anything."""
    while steps and not any(steps[-1]):
        del steps[-1]
    return steps


def asked(make, *arguments, **options):
    """Return what a side makes, or None if it refuses."""
    try:
        return make(*arguments, **options)
    except (ValueError, StreamplugError):
        return None


def stop_at(case, steps, part):
    """Return a step at which both sides can be left and continue with the same samples.

    Ranks that would get one sample less repeat an earlier one. Theirs look for it among those that are
    left, but when the epoch was not interrupted, among all; ours among all. So little must not be left.
    """
    step = int(part * steps)
    if case.options.get("batching_method", "random") == "random":
        places = (case.first, case.second)
        left = (
            3 * max(each.local for each in places) * max(each.nodes * each.local for each in places)
        )
        step = max(min(step, steps - 1 - -(-left // case.first.total)), 0)
    return step


def both(mosaic, made, case, place, state=None):
    """Return their data set, or None, and a function that returns ours."""
    folders = made(case.shards)

    def options(stream):
        streams = [stream(local=place, **weight) for place, weight in zip(folders, case.weights)]
        return {"streams": streams, "replication": place.replication, **case.options}

    there = asked(Theirs, mosaic, place, state, **options(mosaic.Stream))
    return there, lambda: Ours(place, state, **options(names.Stream))


def compare(mosaic, made, case):
    """Compare a run, its continuation elsewhere from their state, and back from ours.

    Returns:
        Whether they serve all three worlds.
    """
    total = case.first.total
    with case.first.entered():
        there, make = both(mosaic, made, case, case.first)
        expected = there and asked(there.epoch, case.epoch)
        here = asked(make)
        found = here.epoch(case.epoch) if here else []
        # An epoch without a whole batch is refused here, and theirs is empty.
        if expected is None:
            return False
        assert found == expected[1]
        if not found:
            return False
        step = stop_at(case, len(found), case.stops[0])
        state, mine = there.state(step * total), here.state(step * total)
        assert {name: mine[name] for name in state} == {**state, "epoch": 0}
    with case.second.entered():
        there, make = both(mosaic, made, case, case.second, state)
        expected = there and asked(there.epoch, 0)
        if expected is None:
            return False
        here = make()
        assert here.epoch(case.epoch, step) == expected[1]
        step += stop_at(case, len(expected[1]), case.stops[1])
        state, rest = here.state(step * total), here.epoch(case.epoch, step)
        expected = asked(there.epoch, case.epoch + 1)
        assert expected is None or here.epoch(case.epoch + 1) == expected[1]
    with case.first.entered():
        there, make = both(mosaic, made, case, case.first, state)
        expected = there and asked(there.epoch, 0)
        if expected is None:
            return False
        found = make().epoch(case.epoch, step)
        if case.options.get("batching_method", "random") == "random":
            assert found == expected[1]
        else:  # theirs would begin another order
            assert list(map(_joined, found)) == list(map(_joined, rest))
    return True


def _joined(ranks):
    """Return the samples of a step of all ranks."""
    return [sample for batch in ranks for sample in batch]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_thousand_orders_and_their_states(theirs, made, batching):
    served, seed, seen = 0, 0, Counter()
    while served < EACH:
        case, seed = case_of(batching, seed), seed + 1
        try:
            done = compare(theirs, made, case)
        except Exception:
            print(f"case_of({batching!r}, {seed - 1}): {case}")
            raise
        served += done
        seen.update(features(case) if done else [])
        assert seed < 4 * EACH
    assert len(seen) == 6
    assert min(seen.values()) >= EACH // 25, seen


def features(case):
    """Return what is worth counting in a case."""
    options = case.options
    canonical_nodes = "num_canonical_nodes" not in options
    stored = not options.get("shuffle") and options.get("shuffle_algo") in ("py1s", "py2s")
    groups = [each for each in (case.first, case.second) if (each.replication or 1) > 1]
    found = {
        "canonical nodes left open": canonical_nodes,
        "canonical nodes of py1s and py2s, not shuffled": canonical_nodes and stored,
        "blocks left open": "shuffle_block_size" not in options and options.get("shuffle"),
        "replication on one node": any(each.nodes == 1 for each in groups),
        "replication on several nodes": any(each.nodes > 1 for each in groups),
        "weights": any(case.weights) or "epoch_size" in options,
    }
    return [name for name, is_so in found.items() if is_so]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("vision", "StreamingCIFAR10"),
        ("vision", "StreamingImageNet"),
        ("vision", "StreamingCOCO"),
        ("vision", "StreamingADE20K"),
        ("text", "StreamingEnWiki"),
        ("multimodal", "StreamingInsideWebVid"),
    ],
)
def test_the_well_known_data_sets_by_their_defaults(theirs, made, module, name, shuffle):
    pytest.importorskip("streamplug_datasets")
    folder = made([[40, 31, 7, 40, 40, 40, 22]])[0]
    place = Place(2, 2, 2, None, 3)
    with place.entered():
        cls = getattr(getattr(theirs, module), name)
        expected = Theirs(theirs, place, cls=cls, local=folder, shuffle=shuffle).epoch(1)
        here = Ours(place, cls=getattr(names, name), local=folder, shuffle=shuffle)
        assert here.epoch(1) == expected[1]


def single(sizes, place, **options):
    """Return the case of one stream that is read on one world."""
    return Case([sizes], [{}], options, 0, place, place, (0, 0))


def test_resumed_just_before_the_end_theirs_repeat_other_samples(theirs, made):
    case = single([9], Place(1, 4, 1, None, 2), partition_algo="orig", num_canonical_nodes=1)
    state = {"epoch": 0, "sample_in_epoch": 8, "num_canonical_nodes": 1, "shuffle_seed": 9176}
    with case.first.entered():
        there, make = both(theirs, made, case, case.first)
        assert there.epoch(0)[1][1] == [[8], [3], [4], [5]]
        assert make().epoch(0, 1) == [[[8], [3], [4], [5]]]
        there, make = both(theirs, made, case, case.first, state)
        assert there.epoch(0)[1] == [[[8], [8], [8], [8]]]
        assert make().epoch(0, 1) == [[[8], [3], [4], [5]]]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_an_epoch_of_nothing_is_refused(theirs, made, batching):
    place = Place(1, 1, 1, None, 2)
    case = single([3], place, shuffle=True, shuffle_algo="py1s", batching_method=batching)
    case.weights[0]["repeat"] = 0.1
    with place.entered():
        with np.errstate(all="ignore"):
            there, make = both(theirs, made, case, place)
        assert asked(there.epoch, 0) is None
        with pytest.raises(ConfigError, match="an epoch of the data set has no samples"):
            make().data.explain(0)
