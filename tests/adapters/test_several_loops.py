"""Loops over one data set that run side by side, and ranks that get a data set from their launcher."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402, TID251
import torch.multiprocessing as mp  # noqa: E402, TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from tests.start_methods import METHODS  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZE, BATCH = 63, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, max_samples_per_shard=10) as writer:
        for n in range(SIZE):
            writer.write({"n": n})
    return str(out)


@pytest.fixture
def dataset(folder) -> StreamingDataset:
    return StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)


def epochs(folder, count=2):
    dataset = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    return [[batch["n"].tolist() for batch in dataset.batches()] for _ in range(count)]


def start_late(worker):
    time.sleep(worker)


def end_earlier(earlier, loop):
    """End a loop after three batches of one that was started later."""
    next(earlier)
    for _ in range(3):
        next(loop)
    list(earlier)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("loaders", [1, 2])
def test_loops_side_by_side_have_an_epoch_each(folder, dataset, loaders):
    options = {"num_workers": 2, "worker_init_fn": start_late}
    made = [StreamingDataLoader(dataset, **options) for _ in range(loaders)]
    pairs = list(zip(made[0], made[-1]))
    first, second = ([batch["n"].tolist() for batch in batches] for batches in zip(*pairs))
    assert [first, second] == epochs(folder)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_state_of_a_loader_is_that_of_its_own_loop(folder, dataset, workers):
    loader, other = (StreamingDataLoader(dataset, num_workers=n) for n in (workers, 0))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    list(other)
    resumed = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert [batch["n"].tolist() for batch in resumed.batches()] == epochs(folder)[0][3:]
    list(batches)
    assert loader.state_dict()["epoch"] == 2


def test_the_end_of_another_loop_does_not_move_that_of_a_loader(folder, dataset):
    other, loader = StreamingDataLoader(dataset), StreamingDataLoader(dataset)
    earlier, batches = iter(other), iter(loader)
    end_earlier(earlier, batches)
    resumed = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert [batch["n"].tolist() for batch in resumed.batches()] == epochs(folder)[1][3:]


@pytest.mark.timeout(120)
def test_a_loop_whose_persistent_workers_are_taken_ends_with_an_error(folder, dataset):
    loader = StreamingDataLoader(dataset, num_workers=1, persistent_workers=True)
    one = iter(loader)
    next(one)
    two = iter(loader)
    found = [next(two)["n"].tolist()]
    with pytest.raises(ConfigError, match="has taken its persistent workers"):
        list(one)
    found += [batch["n"].tolist() for batch in two]
    assert found == epochs(folder)[1]


def read(dataset, found):
    found.put([batch["n"].tolist() for batch in dataset.batches()])


@pytest.mark.timeout(120)
def test_processes_of_one_rank_read_one_epoch_after_the_other(folder, dataset):
    found = mp.get_context("fork").SimpleQueue()
    results = []
    for _ in range(2):
        context = mp.start_processes(
            lambda _, *given: read(*given), (dataset, found), join=False, start_method="fork"
        )
        results.append(found.get())
        while not context.join():
            pass
    assert results == epochs(folder)
    assert dataset.state_dict(0)["epoch"] == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loop_that_cannot_start_takes_no_epoch(folder, dataset, workers, monkeypatch):
    def fail(loader):
        raise RuntimeError("no memory for processes")

    loader = StreamingDataLoader(dataset, num_workers=workers)
    with monkeypatch.context() as patched:
        patched.setattr(StreamingDataLoader, "_get_iterator", fail)
        with pytest.raises(RuntimeError):
            next(iter(loader))
    assert loader.state_dict()["epoch"] == 0
    assert [batch["n"].tolist() for batch in loader] == epochs(folder)[0]


def read_as_rank(rank, dataset, address, found):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    try:
        loader = StreamingDataLoader(dataset, num_workers=1)
        batches = [batch["n"].tolist() for batch in loader]
        found.put((len(loader), loader.state_dict()["epoch"], batches))
        dist.barrier()
    finally:
        dist.destroy_process_group()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_get_the_data_set_from_their_launcher_share_an_epoch(
    folder, dataset, tmp_path, method
):
    found = mp.get_context(method).SimpleQueue()
    address = f"file://{tmp_path}/store"
    context = mp.start_processes(
        read_as_rank, (dataset, address, found), nprocs=2, join=False, start_method=method
    )
    results = [found.get() for _ in range(2)]
    while not context.join():
        pass
    assert [result[:2] for result in results] == [(7, 1), (7, 1)]
    read = [n for result in results for batch in result[2] for n in batch]
    assert (len(read), len(set(read))) == (7 * 2 * BATCH, SIZE)
    assert dataset.state_dict()["epoch"] == 0  # in this process, nothing was read


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loop_does_not_follow_the_resize_of_another_loader(dataset, workers):
    loader, other = StreamingDataLoader(dataset, num_workers=workers), StreamingDataLoader(dataset)
    batches = iter(loader)
    next(batches)
    other.resize(World())
    with pytest.raises(ConfigError, match="this loop cannot follow resize"):
        next(batches)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_end_of_a_loop_does_not_move_a_later_one_over_the_same_loader(folder, dataset, workers):
    loader = StreamingDataLoader(dataset, num_workers=workers)
    earlier, batches = iter(loader), iter(loader)
    end_earlier(earlier, batches)
    for step in (3, 4):
        resumed = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
        resumed.load_state_dict(loader.state_dict())
        assert [batch["n"].tolist() for batch in resumed.batches()] == epochs(folder)[1][step:]
        next(batches)
    list(batches)
    assert loader.state_dict()["epoch"] == 2


def test_a_loop_within_another_one_over_the_same_loader_does_not_move_it(folder, dataset):
    loader = StreamingDataLoader(dataset)
    batches = iter(loader)
    next(batches)
    list(loader)
    next(batches)
    resumed = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert [batch["n"].tolist() for batch in resumed.batches()] == epochs(folder)[0][2:]
    list(batches)
    assert loader.state_dict() == dataset.state_dict()
    assert loader.state_dict()["epoch"] == 2


def test_the_end_of_a_loop_over_a_loader_does_not_move_a_later_one_over_its_data_set(
    folder, dataset
):
    earlier, batches = iter(StreamingDataLoader(dataset)), dataset.batches()
    end_earlier(earlier, batches)
    state = dataset.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 3 * BATCH)


@pytest.mark.parametrize("event", ["state", "resize"])
def test_the_error_of_a_loop_that_cannot_go_on_does_not_move_a_later_one(dataset, event):
    loader = StreamingDataLoader(dataset)
    state, earlier = loader.state_dict(), iter(loader)
    next(earlier)
    if event == "state":
        loader.load_state_dict(state)
    batches = iter(loader)
    next(batches)
    if event == "resize":
        loader.resize(World())
    next(batches)
    with pytest.raises(ConfigError, match="leave"):
        next(earlier)
    assert dataset.state_dict() == loader.state_dict()
