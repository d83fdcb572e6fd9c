"""Loops over one data set that run side by side, and ranks that get a data set from their launcher."""

from __future__ import annotations

import copy
import time

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402, TID251
import torch.multiprocessing as mp  # noqa: E402, TID251
from torch.utils.data import DataLoader  # noqa: E402, TID251

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


def place(loader):
    state = loader.state_dict()
    return state["epoch"], state["sample_in_epoch"]


def read(batches):
    return [batch["n"].tolist() for batch in batches]


def rest(folder, state):
    """Return what a new data set reads from a state on."""
    resumed = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    resumed.load_state_dict(state)
    return read(resumed.batches())


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
def test_the_state_of_a_loader_is_that_of_the_loop_that_was_advanced_last(folder, dataset, workers):
    loader, other = (StreamingDataLoader(dataset, num_workers=n) for n in (workers, 0))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    list(other)
    assert place(loader) == place(other) == (2, 0)
    assert rest(folder, batches.state_dict()) == epochs(folder)[0][3:]  # that of its own loop
    next(batches)
    assert loader.state_dict() == batches.state_dict()
    assert rest(folder, loader.state_dict()) == epochs(folder)[0][4:]
    list(batches)
    assert place(loader) == (1, 0)  # the other loop did not move the epochs of this one


def test_the_end_of_another_loop_does_not_move_that_of_a_loader(folder, dataset):
    other, loader = StreamingDataLoader(dataset), StreamingDataLoader(dataset)
    earlier, batches = iter(other), iter(loader)
    end_earlier(earlier, batches)
    assert rest(folder, batches.state_dict()) == epochs(folder)[1][3:]
    assert read(batches) == epochs(folder)[1][3:]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_loop_whose_persistent_workers_are_busy_has_others(folder, dataset, workers):
    loader = StreamingDataLoader(dataset, num_workers=workers, persistent_workers=True)
    others = {process.pid for process in mp.active_children()}
    one = iter(loader)
    found = [[next(one)["n"].tolist()]]
    own = {process.pid for process in mp.active_children()} - others
    two = iter(loader)
    found.append([next(two)["n"].tolist()])
    both = {process.pid for process in mp.active_children()} - others
    assert (len(own), len(both)) == (workers, 2 * workers)
    found[0] += read(one)
    found[1] += read(two)
    assert found == epochs(folder)
    assert read(loader) == epochs(folder, 3)[2]
    left = {process.pid for process in mp.active_children()} - others
    assert left <= both
    assert len(left) == workers


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]
)
def test_an_evaluation_within_an_epoch_does_not_move_the_epochs_of_training(
    folder, dataset, options
):
    loader = StreamingDataLoader(dataset, **options)
    plain = epochs(folder, 3)
    for epoch in range(2):
        found = []
        for batch in loader:
            found.append(batch["n"].tolist())
            if len(found) == 5:
                assert read(loader) == plain[epoch + 1]
                assert place(loader) == (epoch + 2, 0)
            if len(found) == 6:  # resumes in the middle of the epoch of training
                assert rest(folder, loader.state_dict()) == plain[epoch][6:]
        assert found == plain[epoch]
        assert place(loader) == (epoch + 1, 0)


@pytest.mark.timeout(60)
def test_a_copy_of_a_loader_takes_no_persistent_workers_that_are_busy(folder, dataset):
    loader = StreamingDataLoader(dataset, num_workers=2, persistent_workers=True)
    plain = epochs(folder, 5)
    assert read(loader) == plain[0]
    other = copy.copy(loader)
    pairs = [(a["n"].tolist(), b["n"].tolist()) for a, b in zip(loader, other)]
    assert pairs == list(zip(*plain[1:3]))
    assert [read(each) for each in (other, loader)] == plain[2:4]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_the_state_of_a_loader_is_of_its_loop_beside_loops_of_torchs_own(folder, dataset, options):
    loader = StreamingDataLoader(dataset, **options)
    evaluation = DataLoader(dataset, batch_size=BATCH, num_workers=2)
    plain = epochs(folder, 3)
    for step, batch in enumerate(loader):
        assert batch["n"].tolist() == plain[0][step]
        if step == 4:
            assert read(evaluation) == plain[1]
        assert place(loader) == (0, BATCH * (step + 1))
    assert place(loader) == (2, 0)  # where the next one begins
    assert read(loader) == plain[2]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_a_resize_goes_on_with_the_loop_of_a_loader_beside_loops_of_torchs_own(
    folder, dataset, options
):
    loader = StreamingDataLoader(dataset, **options)
    evaluation = DataLoader(dataset, batch_size=BATCH, num_workers=2)
    found = []
    for batch in loader:
        found.append(batch["n"].tolist())
        if len(found) == 5:
            assert len(read(evaluation)) == len(loader)
            loader.resize(World(), rewind=2)
    plain = epochs(folder)[0]
    assert found == plain[:5] + plain[3:]
    assert place(loader) == (1, 0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_is_loaded_ends_all_loops_that_have_batches_left(folder, dataset, workers):
    loader = StreamingDataLoader(dataset, num_workers=workers)
    loops = [iter(loader) for _ in range(3)]
    steps = len(loader)
    for loop, count in zip(loops, (steps, 2, 1)):
        for _ in range(count):
            next(loop)
    state = loops[1].state_dict()
    loader.load_state_dict(state)
    assert read(loops[0]) == []  # it has yielded its last batch
    for loop in loops[1:]:
        with pytest.raises(
            ConfigError, match="a state was loaded; leave the loop and start another"
        ):
            next(loop)
    assert read(loader) == epochs(folder)[1][2:]


def read_in_process(dataset, found):
    found.put([batch["n"].tolist() for batch in dataset.batches()])


@pytest.mark.timeout(120)
def test_processes_of_one_rank_read_one_epoch_after_the_other(folder, dataset):
    found = mp.get_context("fork").SimpleQueue()
    results = []
    for _ in range(2):
        context = mp.start_processes(
            lambda _, *given: read_in_process(*given),
            (dataset, found),
            join=False,
            start_method="fork",
        )
        results.append(found.get())
        while not context.join():
            pass
    assert results == epochs(folder)
    assert dataset.state_dict(0)["epoch"] == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}]
)
def test_a_loop_that_cannot_start_takes_no_epoch(folder, dataset, options, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no memory for processes")

    loader = StreamingDataLoader(dataset, **options)
    with monkeypatch.context() as patched:
        patched.setattr("streamplug.adapters.torch_workers._start_iterator", fail)
        patched.setattr(StreamingDataset, "batches", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                next(iter(loader))
    assert place(loader) == (0, 0)
    assert read(loader) == epochs(folder)[0]


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
def test_the_loop_that_was_advanced_last_follows_a_resize_of_another_loader(
    folder, dataset, workers
):
    loader, other = StreamingDataLoader(dataset, num_workers=workers), StreamingDataLoader(dataset)
    earlier, batches = iter(loader), iter(loader)
    next(earlier)
    next(batches)
    other.resize(World())
    assert read(batches) == epochs(folder)[1][1:]
    with pytest.raises(ConfigError, match=r"resize\(\) was called, which only the loop that was"):
        next(earlier)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_end_of_a_loop_does_not_move_a_later_one_over_the_same_loader(folder, dataset, workers):
    loader = StreamingDataLoader(dataset, num_workers=workers)
    earlier, batches = iter(loader), iter(loader)
    end_earlier(earlier, batches)
    assert place(loader) == (1, 0)
    for step in (4, 5):
        next(batches)
        assert rest(folder, loader.state_dict()) == epochs(folder)[1][step:]
    list(batches)
    assert place(loader) == (2, 0)


def test_a_loop_within_another_one_over_the_same_loader_does_not_move_it(folder, dataset):
    loader = StreamingDataLoader(dataset)
    batches = iter(loader)
    next(batches)
    list(loader)
    next(batches)
    assert rest(folder, loader.state_dict()) == epochs(folder)[0][2:]
    list(batches)
    assert loader.state_dict() == dataset.state_dict()
    assert place(loader) == (1, 0)


def test_the_end_of_a_loop_over_a_loader_does_not_move_a_later_one_over_its_data_set(
    folder, dataset
):
    earlier, batches = iter(StreamingDataLoader(dataset)), dataset.batches()
    end_earlier(earlier, batches)
    assert place(dataset) == (1, 0)
    assert read(batches) == epochs(folder)[1][3:]


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
