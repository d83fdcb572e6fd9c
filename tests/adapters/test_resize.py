"""Loaders that go on in another world: what workers have read ahead is dropped, and the workers stay."""

from __future__ import annotations

import multiprocessing
import random
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError, StateError  # noqa: E402
from tests.start_methods import SPAWN  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, GLOBAL_BATCH = 1000, 24
WIDE = 512  # float64: batches go through shared memory
STEPS = -(-SIZE // GLOBAL_BATCH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"id": "int", "wide": f"ndarray:float64:{WIDE}"}
    with MDSWriter(columns=columns, out=out, size_limit=400_000) as writer:
        ids = np.arange(SIZE)
        writer.write_batch({"id": ids, "wide": np.repeat(ids[:, None], WIDE, 1).astype(float)})
    return str(out)


@pytest.fixture(scope="module")
def plain(folder) -> list[list[list[int]]]:
    """The global batches of three epochs."""
    data = make(folder)
    return [[sorted(batch["id"].tolist()) for batch in data.batches()] for _ in range(3)]


def make(folder, ranks=1, rank=0):
    world = World(ranks_per_node=ranks, rank=rank)
    return StreamingDataset(
        local=folder, shuffle=True, batch_size=GLOBAL_BATCH // ranks, world=world
    )


def same(sample):
    return sample


LOADERS = {
    "columns": {},
    "threads": {"num_threads": 2},
    "samples": {"transform": same},
    "in process": {"num_workers": 0},
    "in process, samples": {"num_workers": 0, "transform": same},
    "persistent": {"persistent_workers": True},
    "spawn": {"multiprocessing_context": SPAWN, "persistent_workers": True},
    "three": {"num_workers": 3, "prefetch_factor": 4},
}


def load(data, kind="columns", **options):
    return StreamingDataLoader(data, **{"num_workers": 2, **LOADERS[kind], **options})


def check(batch):
    assert (batch["wide"] == batch["id"][:, None]).all()
    return batch["id"].tolist()


@pytest.mark.parametrize("kind", ["columns", "samples", "in process", "persistent"])
def test_the_global_batch_may_change(folder, kind):
    order = [n for batch in make(folder).batches() for n in batch["id"].tolist()][:SIZE]
    loader, read = load(make(folder), kind), []
    for step, batch in enumerate(loader):
        ids = check(batch)
        assert len(ids) == loader.batch_size
        read += ids
        if step in (2, 7):
            loader.resize(World(), batch_size=(40, 0, 0, 0, 0, 17)[step - 2])
    assert read[:SIZE] == order
    assert len(read) - SIZE < 17
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("kind", ["in process", "persistent"])
def test_a_dropped_last_batch_is_that_of_the_epoch_of_now(folder, kind):
    loader = load(make(folder), kind, drop_last=True)
    read = []
    for step, batch in enumerate(loader):
        read += check(batch)
        if step == 20:
            loader.resize(World(), batch_size=100)
    assert set(read) == set(range(SIZE))  # every last batch is whole


@pytest.mark.parametrize("kind", LOADERS)
def test_the_loop_goes_on_with_the_next_batch(folder, plain, kind):
    """Also at the first step, when workers may still start, and at the last, which all have been read."""
    data = make(folder)
    loader = load(data, kind)
    worlds = {1: (3, 1), 20: (2, 0), STEPS - 3: (4, 2), STEPS - 1: (6, 5), STEPS: (1, 0)}
    pids, others = set(), {process.pid for process in multiprocessing.active_children()}
    for epoch in range(2):
        ranks, step = 1, 0
        assert len(loader) == STEPS
        for batch in loader:
            ids = check(batch)
            assert len(ids) == GLOBAL_BATCH // ranks == loader.batch_size
            uses = data.explain(step, epoch=epoch, rank=data.session.world.rank)
            assert ids == [use.sample for use in uses]
            assert set(ids) <= set(plain[epoch][step])
            step += 1
            if step in worlds:
                ranks, rank = worlds[step]
                loader.resize(World(ranks_per_node=ranks, rank=rank))
            state = loader.state_dict()
            assert (state["epoch"], state["sample_in_epoch"]) == (epoch, step * GLOBAL_BATCH)
            if loader.persistent_workers:
                pids |= {process.pid for process in multiprocessing.active_children()}
        assert step == STEPS
    assert len(pids - others) == loader.persistent_workers * loader.num_workers


@pytest.mark.parametrize("kind", ["columns", "samples", "persistent", "in process"])
@pytest.mark.parametrize("seed", range(2))
def test_changes_at_random(folder, plain, kind, seed):
    """Steps fail, loops are left, and worlds change several times in a row."""
    draw = random.Random(seed)
    data = make(folder)
    loader = load(data, kind)
    for epoch in range(3):
        step = 0
        for batch in loader:
            ids = check(batch)
            assert len(ids) == data.batch_size
            assert set(ids) <= set(plain[epoch][step])
            step += 1
            while draw.random() < 0.2:
                ranks = draw.choice([1, 2, 3, 4, 6, 8, 12, 24])
                rewind = min(draw.choice([0, 0, 1, 3]), step)
                step -= rewind
                loader.resize(World(ranks_per_node=ranks, rank=ranks - 1), rewind=rewind)
                assert loader.state_dict()["sample_in_epoch"] == step * GLOBAL_BATCH
            if draw.random() < 0.01:
                loader.resize(World())
                break
        else:
            assert step == STEPS


def global_batch(loops):
    return sorted(number for loop in loops for number in check(next(loop)))


@pytest.mark.parametrize("kind", ["columns", "persistent", "in process"])
def test_a_rank_that_joins_goes_on_with_the_others(folder, plain, kind):
    loaders = [load(make(folder, 2, rank), kind) for rank in range(2)]
    loops = [iter(loader) for loader in loaders]
    for step in range(5):
        assert global_batch(loops) == plain[0][step]
    for rank, loader in enumerate(loaders):
        loader.resize(World(3, 1, rank=rank))
    joined = load(make(folder, 3, 2), kind)
    joined.load_state_dict(loaders[0].state_dict())
    loops.append(iter(joined))
    for step in range(5, STEPS):
        assert global_batch(loops) == plain[0][step]
    assert [next(loop, None) for loop in loops] == [None] * 3


def test_a_loop_that_was_left_is_over(folder, plain):
    loader = load(make(folder), "persistent")
    for _ in loader:
        break
    loader.resize(World(1, 2))
    assert loader.state_dict()["sample_in_epoch"] == GLOBAL_BATCH
    loader.load_state_dict({**loader.state_dict(), "sample_in_epoch": 0, "epoch": 1})
    loader.resize(World(1, 1))
    assert [sorted(check(batch)) for batch in loader] == plain[1]


class Even(StreamingDataset):
    """A data set that makes samples of its own."""

    def __iter__(self):
        for sample in super().__iter__():
            yield {"id": sample["id"], "wide": sample["wide"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_data_sets_with_samples_of_their_own_follow(folder, plain, workers):
    data = Even(local=folder, shuffle=True, batch_size=GLOBAL_BATCH, world=World())
    loader = load(data, num_workers=workers)
    for step, batch in enumerate(loader):
        assert set(check(batch)) <= set(plain[0][step])
        if step == 4:
            loader.resize(World(1, 4))
    assert (step, len(batch["id"])) == (STEPS - 1, GLOBAL_BATCH // 4)


def test_the_data_set_knows_where_the_loop_of_a_loader_is(folder, plain):
    data = make(folder)
    read = []
    for batch in load(data):
        read.append(check(batch))
        if len(read) == 2:
            data.resize(World(1, 2))
        assert data.state_dict()["sample_in_epoch"] == len(read) * GLOBAL_BATCH
    assert all(set(part) <= set(whole) for part, whole in zip(read, plain[0], strict=True))


def test_only_torch_knows_where_the_loop_of_its_loader_is(folder):
    data = make(folder)
    for _ in torch.utils.data.DataLoader(data, batch_size=GLOBAL_BATCH, num_workers=1):
        with pytest.raises(StateError, match=r"StreamingDataLoader.state_dict\(\) and resize\(\)"):
            data.resize(World(1, 2))
        break


def test_a_state_that_is_loaded_meanwhile_ends_the_loop_all_the_same(folder):
    for kind in ("columns", "in process"):
        data = make(folder)
        loader = load(data, kind)
        loop = iter(loader)
        next(loop)
        data.load_state_dict(loader.state_dict())
        loader.resize(World(1, 2))
        with pytest.raises(
            ConfigError, match="a state was loaded; leave the loop and start another"
        ):
            next(loop)


def test_the_next_batch_comes_soon(folder):
    """How soon is measured by tests/faults/test_resize.py, with processes that are killed."""
    loader = load(make(folder), "persistent")
    seconds = []
    loop, start = iter(loader), time.perf_counter()
    next(loop)
    first = time.perf_counter() - start  # in which the workers are started
    for step in range(1, STEPS):
        start = time.perf_counter()
        loader.resize(World(1, 1 + step % 4))
        next(loop)
        seconds.append(time.perf_counter() - start)
    assert np.median(seconds) < first, (first, seconds)  # on a busy machine, both take longer


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_state_of_the_data_set_after_an_interrupt_follows_a_rewind(folder, device):
    is_interrupted = False

    def interrupt(batch):
        if is_interrupted:
            raise KeyboardInterrupt
        return batch

    data = make(folder)
    loader = load(data, num_workers=0, batch_transform=interrupt, device=device)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    loader.resize(World(), rewind=2)
    is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert data.state_dict() == loader.state_dict()
    assert data.state_dict()["sample_in_epoch"] == 2 * GLOBAL_BATCH


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["columns", "persistent"])
def test_a_loop_goes_on_after_another_one_within_it_has_ended(folder, plain, kind):
    data = make(folder)
    loader = load(data, kind)
    batches = iter(loader)
    read = [check(next(batches))]
    list(load(data, kind))
    read += [check(next(batches)) for _ in range(STEPS - 1)]
    time.sleep(0.3)  # the workers have read all
    loader.resize(World(), rewind=2)
    read[-2:] = map(check, batches)
    assert list(map(sorted, read)) == plain[0]
