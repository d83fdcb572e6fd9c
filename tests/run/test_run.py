"""Loops over one data set begin where its run says, whatever threads, forks and copies do."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.plan import Position
from streamplug.run import run
from streamplug.run.loop import Part
from tests.start_methods import SOAK

SIZE, BATCH = 40, 4


@pytest.fixture
def folder(tmp_path) -> str:
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set", max_samples_per_shard=9) as writer:
        writer.write_batch({"n": list(range(SIZE))})
    return str(tmp_path / "set")


@pytest.fixture
def dataset(folder) -> StreamingDataset:
    return StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)


def test_threads_that_begin_at_once_have_an_epoch_each(dataset):
    begin, interval = dataset.session.begin, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            begun = list(threads.map(lambda _: [begin() for _ in range(500)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    loops = [loop for some in begun for loop in some]
    assert sorted(loop.position for loop in loops) == [Position(n) for n in range(4000)]
    assert len({loop.number for loop in loops}) == 4000


def test_a_loop_that_fails_to_start_takes_back_no_other(dataset):
    session = dataset.session

    def fail(others):
        with session.looping(session.begin()) as loop:
            begun = [session.begin().position for _ in range(others)]  # as other threads would
            raise ValueError(loop.position, begun)

    with pytest.raises(ValueError) as caught:
        fail(others=0)
    assert caught.value.args == (Position(0), [])
    assert session.begin().position == Position(0)
    with pytest.raises(ValueError) as caught:
        fail(others=1)
    assert caught.value.args == (Position(1), [Position(2)])
    assert session.begin().position == Position(3)


def test_a_loop_that_fails_after_its_first_batch_has_begun(dataset):
    session = dataset.session

    def fail():
        with session.looping(session.begin()) as loop:
            loop.advance(0)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert dataset.state_dict()["sample_in_epoch"] == BATCH
    assert session.begin().position == Position(1)


def test_a_child_begins_an_epoch_whatever_threads_did_at_the_fork(dataset):
    with run._beginning:
        child = multiprocessing.get_context("fork").Process(
            target=lambda: Thread(target=dataset.session.begin).start()
        )
        child.start()
        child.join(20)
        is_hanging = child.is_alive()
        child.kill()
    assert not is_hanging


def test_a_copy_begins_with_the_next_epoch_by_itself(dataset):
    dataset.load_state_dict({**dataset.state_dict(), "epoch": 4, "sample_in_epoch": 2 * BATCH})
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.session.begin().position == Position(4, 2 * BATCH)
    dataset.session.begin()
    copy = pickle.loads(pickle.dumps(dataset))
    assert dataset.session.begin().position == Position(5)
    assert copy.session.begin().position == Position(5)


def test_an_order_is_not_computed_anew_for_another_world(dataset):
    session = dataset.session
    other = pickle.loads(pickle.dumps(session))
    epoch = other.run.epoch(0, other.world)
    for ranks in (2, 1, 4):
        dataset.resize(World(1, ranks, rank=0))
        other.adopt(pickle.loads(pickle.dumps(session.snapshot())))
        assert other.world.ranks == ranks
        assert other.run.epoch(0, other.world) is epoch


def test_each_of_the_loops_of_several_threads_reads_one_epoch(dataset):
    """Which one depends on which loop was advanced last when it began."""
    epochs = [
        tuple(u.sample for n in range(10) for u in dataset.explain(n, epoch=epoch))
        for epoch in range(40)
    ]
    plain = lambda _: [sample["n"] for sample in dataset]  # noqa: E731
    random = lambda _: [sample["n"] for sample, _ in dataset.samples_with_rng()]  # noqa: E731
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = [*threads.map(plain, range(20)), *threads.map(random, range(20))]
    finally:
        sys.setswitchinterval(interval)
    assert {tuple(samples) for samples in found} <= set(epochs)


def test_what_one_thread_was_told_to_read_is_of_no_other(dataset):
    """Unless code of others may read ahead, in a thread of its own."""
    session = dataset.session

    def read_elsewhere():
        with ThreadPoolExecutor(1) as threads:
            threads.submit(lambda: next(dataset.batches())).result()
        return session.part

    part = Part(Position(7), 1)
    with session.telling(part):
        assert read_elsewhere().start == Position(0)
        next(dataset.batches())
        assert session.part is part
    with session.telling(part, by_any_thread=True):
        assert read_elsewhere() is part


def test_a_state_may_be_saved_while_other_threads_begin_and_end_loops(folder):
    """With torch, loops are counted for workers of its loader, too; nobody else has read here."""
    pytest.importorskip("torch")
    from streamplug import StreamingDataset as TorchDataset

    dataset = TorchDataset(local=folder, batch_size=BATCH, shuffle=True)
    interval, is_over = sys.getswitchinterval(), Event()

    def read():
        while not is_over.is_set():
            list(dataset.batches())

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as threads:
            reading = [threads.submit(read) for _ in range(3)]
            try:
                states = [dataset.state_dict() for _ in range(2000 if SOAK else 300)]
            finally:
                is_over.set()
            for each in reading:
                each.result()
    finally:
        sys.setswitchinterval(interval)
    assert all(state["sample_in_epoch"] % BATCH == 0 for state in states)


def test_an_error_of_a_subclass_names_the_epoch_of_its_own_loop(folder):
    class Failing(StreamingDataset):
        fails = False

        def __getitem__(self, at):
            if self.fails:
                raise ValueError("own")
            return super().__getitem__(at)

    dataset = Failing(local=folder, batch_size=BATCH, shuffle=True)
    loop = iter(dataset)
    next(loop)
    next(iter(dataset))  # another loop
    Failing.fails = True
    with pytest.raises(ValueError, match="own") as caught:
        list(loop)
    assert "epoch 0, step 1)" in "".join(getattr(caught.value, "__notes__", ["epoch 0, step 1)"]))


@pytest.mark.parametrize("size", [BATCH, 1 << 21])
def test_a_data_set_without_a_batch_size_takes_that_of_a_state(folder, size):
    saved = StreamingDataset(local=folder, batch_size=size).state_dict()
    dataset = StreamingDataset(local=folder)
    dataset.load_state_dict(saved)
    assert dataset.batch_size == size


def test_a_state_within_an_epoch_plans_the_epoch_once(dataset, monkeypatch):
    planned, planner = [], dataset.session.run.planner
    plan = planner.epoch
    monkeypatch.setattr(planner, "epoch", lambda *place: planned.append(place) or plan(*place))
    for _ in dataset.batches():
        dataset.state_dict()
    assert len(planned) == 1
