"""Worlds that change while a data set is being read."""

from __future__ import annotations

import itertools
import os
import pickle
import random

import numpy as np
import pytest

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.interfaces import Callback, EpochEnded, EpochStarted
from tests.mixing import needs_mixing

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
RUNS = 1000 if SOAK else 8
SIZE, GLOBAL_BATCH = 100, 12
WORLDS = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 6), (2, 3), (3, 2), (4, 3)]
"""Nodes and ranks per node, as many ranks as divide the global batch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int"}, out=out, size_limit=350) as writer:
        writer.write_batch({"id": list(range(SIZE))})
    return str(out)


def make(folder, world=(1, 1), rank=0, **options):
    world = World(*world, rank=rank)
    options = {"shuffle": True, "batch_size": GLOBAL_BATCH // world.ranks, **options}
    return StreamingDataset(local=folder, world=world, **options)


def undisturbed(folder, epochs=2, **options):
    """Return the global batches of some epochs as sorted sample ids."""
    data = make(folder, **options)
    return [[sorted(b["id"].tolist()) for b in data.batches()] for _ in range(epochs)]


class Group:
    """The ranks of a world that change, all in this process.

    Each rank has its data set, and its loop over batches or samples.
    """

    def __init__(self, folder, world, *, by_sample=False, **options):
        self.folder, self.options, self.by_sample = folder, options, by_sample
        ranks = World(*world).ranks
        self.data = [make(folder, world, rank, **options) for rank in range(ranks)]
        self.start_epoch()

    def start_epoch(self):
        self.loops = [iter(data if self.by_sample else data.batches()) for data in self.data]

    def step(self):
        """Return the sorted ids of the next global batch, or None after the last one."""
        parts = [self._batch(data, loop) for data, loop in zip(self.data, self.loops)]
        assert len({part is None for part in parts}) == 1
        return None if parts[0] is None else sorted(itertools.chain(*parts))

    def _batch(self, data, loop):
        if self.by_sample:
            part = [s["id"] for s in itertools.islice(loop, data.batch_size)]
        else:
            part = next(loop, {"id": np.array([])})["id"].tolist()
        return part or None

    def resize(self, world, survivors, rewind=0):
        """Go on with the survivors as the first ranks, and new ranks after them."""
        ranks = World(*world).ranks
        kept = survivors[:ranks]
        self.data = [self.data[n] for n in kept]
        self.loops = [self.loops[n] for n in kept]
        for rank, data in enumerate(self.data):
            data.resize(World(*world, rank=rank), rewind=rewind)
        states = [data.state_dict() for data in self.data]
        assert states == states[:1] * len(states)
        for rank in range(len(kept), ranks):
            joined = make(self.folder, world, rank, **self.options)
            joined.load_state_dict(states[0])
            self.data.append(joined)
            self.loops.append(iter(joined if self.by_sample else joined.batches()))


def run(folder, seed, **options):
    """Return the committed global batches of two epochs with random changes, and the number of these."""
    draw = random.Random(seed)
    first = draw.choice(WORLDS)
    group = Group(folder, first, by_sample=draw.random() < 0.5, **options)
    batches, changes = [[], []], 0
    for committed in batches:
        while (batch := group.step()) is not None:
            failed = draw.random() < 0.15
            if not failed:
                committed.append(batch)
            while failed or draw.random() < 0.25:
                survivors = draw.sample(range(len(group.data)), draw.randint(1, len(group.data)))
                group.resize(draw.choice(WORLDS), survivors, rewind=int(failed))
                failed, changes = False, changes + 1
        group.start_epoch()
    return first[0], batches, changes


@pytest.mark.timeout(3000 if SOAK else 300)
def test_global_batches_are_those_of_a_run_that_was_left_alone(folder):
    # The number of nodes at the start of a run is part of its order.
    plain = {nodes: undisturbed(folder, num_canonical_nodes=nodes) for nodes in range(1, 5)}
    changes = 0
    for seed in range(RUNS):
        nodes, batches, changed = run(folder, seed)
        changes += changed
        assert batches == plain[nodes], seed
    assert changes > 3 * RUNS


@pytest.mark.parametrize("by_sample", [False, True])
def test_global_batches_may_change_with_the_world(folder, by_sample):
    """The sequence of samples stays, whatever the batches; ranks that join know the batches of now."""
    options = {"num_canonical_nodes": 2}
    data = make(folder, **options)
    orders = [[n for b in data.batches() for n in b["id"].tolist()] for _ in range(2)]
    draw = random.Random(int(by_sample))
    group, batch_size = Group(folder, (1, 2), by_sample=by_sample, **options), 6
    changes = {2: ((1, 5), 3), 4: ((2, 2), 1), 9: ((1, 1), 7), 12: ((1, 3), 2)}
    for order in orders:
        done = 0
        for step in itertools.count(1):
            batch = group.step()
            if batch is None:
                break
            count = len(batch)
            expected = [order[(done + at) % SIZE] for at in range(count)]
            assert batch == sorted(expected)
            done += count
            if step in changes:
                world, batch_size = changes[step]
                ranks = World(*world).ranks
                survivors = draw.sample(range(len(group.data)), draw.randint(1, len(group.data)))
                group.data = [group.data[n] for n in survivors[:ranks]]
                group.loops = [group.loops[n] for n in survivors[:ranks]]
                for rank, data in enumerate(group.data):
                    data.resize(World(*world, rank=rank), batch_size=batch_size)
                    assert data.batch_size == batch_size
                state = group.data[0].state_dict()
                assert state["sample_in_epoch"] == done
                for rank in range(len(group.data), ranks):
                    joined = make(folder, world, rank, **options, batch_size=batch_size)
                    joined.load_state_dict(state)
                    group.data.append(joined)
                    group.loops.append(iter(joined if by_sample else joined.batches()))
        assert done >= SIZE
        group.start_epoch()


def test_a_rewind_crosses_a_change_of_the_global_batch(folder):
    data = make(folder)
    order = [n for b in make(folder).batches() for n in b["id"].tolist()]
    loop, read = data.batches(), []
    for _ in range(3):
        read += next(loop)["id"].tolist()
    data.resize(World(), batch_size=5)
    for _ in range(2):
        read += next(loop)["id"].tolist()
    assert read == order[: 36 + 10]
    data.resize(World(), rewind=3)  # both batches of 5, and one of 12
    assert data.batch_size == 12
    assert data.state_dict()["sample_in_epoch"] == 24
    assert [n for b in loop for n in b["id"].tolist()][: SIZE - 24] == order[24:SIZE]


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {}, "no multiple of 5; go on with .*, or give the batch_size= of a rank"),
        ({}, {"batch_size": 0}, "batch_size=0: must be a whole number of at least 1"),
        pytest.param(
            {"batching_method": "stratified"},
            {"batch_size": 3},
            "12 becomes 15, which needs batching_",
            marks=needs_mixing,
        ),
        pytest.param(
            {"curriculum": {0: [1]}},
            {"batch_size": 3},
            "without a curriculum; go on with as many",
            marks=needs_mixing,
        ),
    ],
)
def test_a_global_batch_that_cannot_change_is_refused(folder, options, arguments, message):
    data = make(folder, **options)
    loop = data.batches()
    next(loop)
    before = data.state_dict()
    with pytest.raises(ConfigError, match=message):
        data.resize(World(1, 5), **arguments)
    assert data.state_dict() == before
    assert len(next(loop)["id"]) == 12


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_loop_goes_on_in_the_new_world(folder, num_threads):
    [plain, _] = undisturbed(folder)
    data = make(folder)
    found = []
    for batch in data.batches(num_threads=num_threads):
        found.append(sorted(batch["id"].tolist()))
        if len(found) == 2:
            data.resize(World(ranks_per_node=3, rank=1))
            assert (data.batch_size, len(data)) == (4, 36)
            assert data.state_dict()["sample_in_epoch"] == 2 * GLOBAL_BATCH
            assert "1 of 3" in repr(data) or data.session.world.rank == 1
    assert [len(batch) for batch in found] == [12, 12] + [4] * 7
    assert all(set(part) < set(whole) for part, whole in zip(found[2:], plain[2:]))
    assert data.next_epoch == 1


def test_explain_and_where_follow(folder):
    data = make(folder)
    before = data.explain(4, epoch=0)
    data.resize(World(2, 2))
    after = data.explain(4, epoch=0)
    assert {use.sample for use in after} == {use.sample for use in before}
    assert [use.rank for use in after] == [rank for rank in range(4) for _ in range(3)]
    assert data.where(after[-1].sample, epoch=0)[0].rank == 3


def test_what_the_first_world_decided_stays(folder):
    data = [make(folder, (2, 1), rank) for rank in range(2)]
    batches = [next(each.batches())["id"].tolist() for each in data]
    before = data[0].state_dict()
    data[0].resize(World())
    assert data[0].num_canonical_nodes == 2
    assert data[0].state_dict() == before
    data[0].resize(World(1, 4))
    assert data[0].state_dict() == before
    assert len(set(itertools.chain(*batches))) == GLOBAL_BATCH


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_resize_between_loops_or_at_their_ends(folder, at):
    plain = undisturbed(folder)
    data = make(folder)
    found = []
    for batch in data.batches():
        found.append(sorted(batch["id"].tolist()))
        if len(found) == at:
            data.resize(World(), rewind=0)
    if not at:
        data.resize(World())
    assert found == plain[0]
    assert [sorted(batch["id"].tolist()) for batch in data.batches()] == plain[1]


def test_rewinding_reads_batches_again(folder):
    [plain, _] = undisturbed(folder)
    data = make(folder)
    found = []
    for batch in data.batches():
        found.append(sorted(batch["id"].tolist()))
        if len(found) == 3:
            data.resize(World(), rewind=2)
            assert data.state_dict()["sample_in_epoch"] == GLOBAL_BATCH
    assert found == plain[:3] + plain[1:]


def test_a_loop_that_was_left_is_over(folder):
    plain = undisturbed(folder)
    data = make(folder)
    for _ in data.batches():
        break
    data.resize(World())
    assert [sorted(batch["id"].tolist()) for batch in data.batches()] == plain[1]
    assert data.next_epoch == 2


def test_replicas_go_on_as_groups(folder):
    [plain, _] = undisturbed(folder)
    data = [make(folder, (1, 4), rank, replication=2, batch_size=6) for rank in range(4)]
    loops = [each.batches() for each in data]
    first = [next(loop)["id"].tolist() for loop in loops]
    assert (first[0], first[2]) == (first[1], first[3])
    assert sorted(first[0] + first[2]) == plain[0]
    for rank in range(2):
        data[rank].resize(World(1, 2, rank=rank))
    assert [sorted(next(loop)["id"].tolist()) for loop in loops[:2]] == [plain[1]] * 2
    with pytest.raises(ConfigError, match="replication=2: the 3 ranks are not groups of 2"):
        data[0].resize(World(1, 3))


@needs_mixing
def test_streams_stay_together(tmp_path, folder):
    from streamplug import Stream

    def options(method):
        streams = [Stream(local=folder, proportion=p) for p in (0.5, 0.25, 0.25)]
        return {"streams": streams, "batching_method": method, "shuffle": True}

    for method in ("stratified", "per_stream", "device_per_stream"):
        alone = StreamingDataset(**options(method), batch_size=6, world=World(1, 2))
        plain = [[use.sample for use in alone.explain(step, epoch=0)] for step in range(8)]
        data = [
            StreamingDataset(**options(method), batch_size=6, world=World(1, 2, rank=rank))
            for rank in range(2)
        ]
        for _ in zip(range(3), *(each.batches() for each in data)):
            pass
        data[0].resize(World(1, 4, rank=3))
        found = [[use.sample for use in data[0].explain(step, epoch=0)] for step in range(8)]
        assert list(map(sorted, found)) == list(map(sorted, plain))


@needs_mixing
def test_a_curriculum_goes_on(folder):
    from streamplug import Stream

    def start(world):
        return StreamingDataset(
            streams=[Stream(local=folder), Stream(local=folder)],
            curriculum={0: [0.5, 0.5], 4: [0.9, 0.1]},
            epoch_size=72,
            batch_size=GLOBAL_BATCH // world.ranks,
            world=world,
        )

    plain = [sorted(use.sample for use in start(World()).explain(n, epoch=1)) for n in range(6)]
    data = start(World(1, 2))
    for _ in data.batches():
        pass
    data.resize(World(1, 3))
    assert [sorted(u.sample for u in data.explain(n, epoch=1)) for n in range(6)] == plain


def test_events_name_the_rank_in_the_new_world(folder):
    class Ranks(Callback):
        def __init__(self):
            self.worlds = []

        def on_event(self, event, world):
            self.worlds.append(world)

    ranks = Ranks()
    data = make(folder, (1, 2), 1, callbacks=[ranks])
    loop = data.batches()
    next(loop)
    data.resize(World())
    for _ in loop:
        pass
    assert (ranks.worlds[0], ranks.worlds[-1]) == (World(1, 2, rank=1), World())


def test_what_cannot_be_is_refused(folder):
    data = make(folder)
    with pytest.raises(ConfigError, match=r"to 5 ranks: the global batch of 12 samples"):
        data.resize(World(5))
    with pytest.raises(ConfigError, match=r"expected a streamplug\.World"):
        data.resize(3)
    with pytest.raises(ConfigError, match="to 2 workers per rank"):
        data.resize(World(1, 2, 2))
    with pytest.raises(ConfigError, match="rewind=1: no batch was read since the position was set"):
        data.resize(World(), rewind=1)
    loop = data.batches()
    next(loop)
    with pytest.raises(ConfigError, match="rewind=2: the loop has yielded 1 batches"):
        data.resize(World(), rewind=2)
    with pytest.raises(ConfigError, match="rewind"):
        data.resize(World(), rewind=-1)
    assert (data.batch_size, data.session.world) == (12, World())
    assert len(next(loop)["id"]) == 12


def test_orders_that_depend_on_the_ranks_are_refused(folder):
    pytest.importorskip("streamplug_mosaic")
    for algorithm in ("orig", "relaxed"):
        data = make(folder, partition_algo=algorithm)
        with pytest.raises(ConfigError, match=f"partition_algo='{algorithm}', whose order"):
            data.resize(World(2))


def test_the_middle_of_a_batch_is_refused(folder):
    data = make(folder)
    samples = iter(data)
    taken = [next(samples) for _ in range(15)]
    with pytest.raises(ConfigError, match="in the middle of the batch of step 1"):
        data.resize(World(1, 2))
    taken += [next(samples) for _ in range(9)]
    data.resize(World(1, 2))
    taken += samples
    assert len(taken) == 24 + 7 * 6
    samples = iter(data)
    next(samples)
    samples.close()
    data.resize(World())  # the loop was left


def test_a_state_that_was_loaded_meanwhile_ends_the_loop_all_the_same(folder):
    data = make(folder)
    state = data.state_dict()
    loop = data.batches()
    next(loop)
    data.load_state_dict(state)
    data.resize(World(1, 2))
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
        next(loop)
    assert len(next(data.batches())["id"]) == 6


def test_loops_that_cannot_follow_are_ended(folder):
    data = make(folder)
    earlier, loop = data.session.begin(), data.session.begin()
    loop.advance(0)
    data.resize(World(1, 2))
    with pytest.raises(
        ConfigError, match=r"resize\(\) was called, which only the loop that was adv"
    ):
        earlier.advance(0)
    assert loop.follow()
    loop.advance(1)
    assert data.state_dict()["sample_in_epoch"] == 2 * GLOBAL_BATCH


def test_a_copy_goes_on_by_itself(folder):
    data = make(folder)
    data.resize(World(1, 2, rank=1))
    copy = pickle.loads(pickle.dumps(data))
    assert (copy.batch_size, copy.session.world.ranks) == (6, 2)
    loop = copy.batches()
    assert len(next(loop)["id"]) == 6
    copy.resize(World(1, 3))
    assert len(next(loop)["id"]) == 4
    assert data.batch_size == 6


def test_the_place_of_a_loop_is_that_of_its_start(folder, monkeypatch):
    """A process group may be gone when the ranks that are left call resize()."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    data = StreamingDataset(local=folder, batch_size=6)
    loop = data.batches()
    next(loop)
    state = data.state_dict()
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("RANK")
    assert data.state_dict() == state
    data.resize(World())
    assert (data.batch_size, data.state_dict()) == (12, state)
    assert len(next(loop)["id"]) == 12


def test_events_tell_where_a_loop_goes_on(folder):
    events = []

    class Recorder(Callback):
        def on_event(self, event, world):
            events.append(event)

    data = make(folder, callbacks=[Recorder()])
    for number, _ in enumerate(data.batches()):
        if number == 1:
            data.resize(World(1, 2))
    assert events == [EpochStarted(0, 0), EpochEnded(0, complete=True)]
    assert data.stats().batches == 9
    assert data.stats().samples == 24 + 7 * 6


def test_a_state_keeps_the_world_but_no_loop(folder):
    data = make(folder)
    loop = data.batches()
    next(loop)
    data.resize(World(1, 2))
    data.load_state_dict(data.state_dict())
    assert (data.batch_size, data.session.world) == (6, World(1, 2))
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
        next(loop)
    assert len(next(data.batches())["id"]) == 6
    assert data.state_dict()["sample_in_epoch"] == 2 * GLOBAL_BATCH


@pytest.mark.parametrize("rewind", [0, 1])
def test_several_changes_in_a_row_are_followed_at_once(folder, rewind):
    plain, data = undisturbed(folder), make(folder)
    found = []
    for batch in data.batches():
        found.append(sorted(batch["id"].tolist()))
        if len(found) == 3:
            data.resize(World(1, 2), rewind=rewind)
            data.resize(World(1, 3), rewind=rewind)
            data.resize(World())
    assert found == plain[0][:3] + plain[0][3 - 2 * rewind :]


@pytest.mark.parametrize("first", [0, 1])
def test_only_the_loop_that_was_read_last_follows(folder, first):
    plain = undisturbed(folder)
    data = make(folder)
    loops, found = [], []
    for count in (4, 2):  # in the middle of blocks of several batches
        loops.append(data.batches())
        found.append([next(loops[-1])["id"].tolist() for _ in range(count)])
    data.resize(World())
    for number in (first, 1 - first):
        if number == 0:
            with pytest.raises(ConfigError, match=r"resize\(\) was called, which only"):
                next(loops[0])
        else:
            found[1] += [batch["id"].tolist() for batch in loops[1]]
    assert list(map(sorted, found[1])) == plain[1]


def test_a_loop_of_another_epoch_that_was_left_within_a_batch_is_no_harm(folder):
    plain = undisturbed(folder)
    data = make(folder)
    left = iter(data)
    next(left)  # of step 0
    found = [sorted(batch["id"].tolist()) for batch in data.batches()]
    data.resize(World())  # before step 0 of the next epoch
    assert found == plain[1]
    within = iter(data)
    next(within)
    with pytest.raises(ConfigError, match="in the middle of the batch of step 0"):
        data.resize(World())
    del left


def test_states_after_a_change_of_the_global_batch_load(folder):
    for steps, size, more in ((2, 7, 11), (8, 17, 1), (9, 5, 0), (1, 40, 2)):
        data = make(folder)
        loop = data.batches()
        for _ in range(steps):
            next(loop)
        data.resize(World(), batch_size=size)
        for _ in range(more):
            next(loop)
        again = make(folder, batch_size=size)
        again.load_state_dict(data.state_dict())
        assert again.state_dict() == data.state_dict()
        rest = [b["id"].tolist() for b in loop]
        assert [b["id"].tolist() for b in again.batches()] == rest
        assert [b["id"].tolist() for b in again.batches()] == [
            b["id"].tolist() for b in data.batches()
        ]


def test_numbers_of_samples_are_those_between_the_batches_of_now(folder):
    data = make(folder)
    loop = data.batches()
    next(loop)
    data.resize(World(), batch_size=7)
    next(loop)
    assert data.state_dict(19) == data.state_dict()
    for samples in (14, 24, 7, -12):
        with pytest.raises(StateError, match="exists only between global batches"):
            data.state_dict(samples)


def test_substitutes_are_of_the_global_batch_of_now(folder):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset
    from streamplug.errors import DecodeError

    def loader(size, bad):
        def transform(sample):
            if sample["id"] == bad:
                raise DecodeError("it is bad")
            return sample

        dataset = TorchDataset(local=folder, shuffle=True, batch_size=size, on_error="substitute")
        return StreamingDataLoader(dataset, transform=transform)

    order = [n for batch in loader(12, -1) for n in batch["id"].tolist()]
    for bad in order[24:28]:
        running = loader(12, bad)
        loop = iter(running)
        for _ in range(3):
            next(loop)
        running.resize(World(), rewind=1, batch_size=4)
        resumed = loader(4, bad)
        resumed.load_state_dict(running.state_dict())
        got = next(loop)["id"].tolist()
        assert got == next(iter(resumed))["id"].tolist()
        assert set(got) <= set(order[24:28]) - {bad}


def test_a_batch_size_that_a_loader_gave_is_not_that_of_a_state(folder):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    def loader(size):
        return StreamingDataLoader(TorchDataset(local=folder, shuffle=True), batch_size=size)

    saved = loader(8)
    next(iter(saved))
    state, other = saved.state_dict(), loader(4)
    with pytest.raises(StateError, match="global_batch: saved 8, now 4"):
        other.load_state_dict(state)
    assert [len(batch["id"]) for batch in other][:2] == [4, 4]
