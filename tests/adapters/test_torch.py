from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402, TID251

import streamplug  # noqa: E402
from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError, NotFound, StateError  # noqa: E402
from tests.loop_threads import loop_threads  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE = 61
BATCH = 4
STEPS = 16  # of a single rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"id": "int", "pixels": "ndarray:uint8:2", "text": "str"}
    with MDSWriter(columns=columns, out=out, size_limit=600) as writer:
        for number in range(SIZE):
            pixels = np.full(2, number, np.uint8)
            writer.write({"id": number, "pixels": pixels, "text": str(number)})
    return str(out)


def make(folder: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(**{"local": folder, "shuffle": True, "batch_size": BATCH, **kwargs})


def loader(folder: str, workers: int = 0, **kwargs: Any) -> StreamingDataLoader:
    own = {
        key: kwargs.pop(key)
        for key in (
            "persistent_workers",
            "multiprocessing_context",
            "prefetch_factor",
            "worker_init_fn",
        )
        if key in kwargs
    }
    return StreamingDataLoader(
        make(folder, **kwargs),
        batch_size=kwargs.get("batch_size", BATCH),
        num_workers=workers,
        **own,
    )


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def epochs(folder) -> list[list[list[int]]]:
    """The batches of the first epochs, as a data set gives them without torch."""
    dataset = streamplug.dataset.StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return [ids(dataset.batches()) for _ in range(4)]


def test_a_data_set_is_one_of_torch(folder):
    dataset = make(folder)
    assert isinstance(dataset, IterableDataset)
    assert isinstance(dataset, streamplug.dataset.StreamingDataset)
    assert StreamingDataset.__doc__ == streamplug.dataset.StreamingDataset.__doc__


def test_batches_are_collated_as_torch_does(folder):
    batch = next(iter(loader(folder)))
    assert isinstance(batch["id"], torch.Tensor)
    assert batch["id"].dtype == torch.int64
    assert batch["pixels"].shape == (BATCH, 2)
    assert batch["text"] == [str(i) for i in batch["id"].tolist()]


@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_the_order_does_not_depend_on_the_workers(folder, epochs, kind, workers):
    it = kind(make(folder), batch_size=BATCH, num_workers=workers)
    assert len(it) == STEPS
    assert [ids(it) for _ in range(3)] == epochs[:3]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
def test_persistent_workers_count_epochs(folder, epochs, kind, workers):
    it = kind(make(folder), batch_size=BATCH, num_workers=workers, persistent_workers=True)
    assert [ids(it) for _ in range(4)] == epochs


def test_persistent_workers_of_a_plain_loader_do_not_go_on_in_another_order(folder):
    data = make(folder)
    it = DataLoader(data, batch_size=BATCH, num_workers=1, persistent_workers=True)
    whole = ids(it)
    data.load_state_dict({**data.state_dict(num_samples=8), "epoch": 0})  # of the same order
    with pytest.raises(ConfigError, match="create a new DataLoader"):
        ids(it)  # nothing could tell whose loop a late worker serves
    assert ids(DataLoader(data, batch_size=BATCH, num_workers=1)) == whole[2:]
    data.load_state_dict(make(folder, num_canonical_nodes=3).state_dict())
    with pytest.raises(ConfigError, match="create a new DataLoader"):
        ids(it)
    anew = DataLoader(data, batch_size=BATCH, num_workers=1, persistent_workers=True)
    assert ids(anew) == ids(loader(folder, num_canonical_nodes=3))


@pytest.mark.parametrize("workers", [0, 2])
def test_proportions_are_changed_between_two_batches(folder, workers):
    def mixed():
        streams = [streamplug.Stream(local=folder), streamplug.Stream(local=folder)]
        data = StreamingDataset(streams=streams, batch_size=BATCH, curriculum={0: [1, 0]})
        keep = {"persistent_workers": True} if workers else {}
        return StreamingDataLoader(data, batch_size=BATCH, num_workers=workers, **keep)

    it = mixed()
    for number, _ in enumerate(it):
        if number == 4:
            state = it.state_dict()
            break
    it.load_state_dict(state)
    it.dataset.set_proportions([1, 3])
    rest = ids(it)
    assert len(rest) == 31 - 5
    assert sorted(rest[0]) == [0, 1, 2, 20]  # the first stream went on, the other began
    again = mixed()
    again.load_state_dict(it.state_dict())
    assert ids(again) == ids(it)


@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
def test_seeding_torch_before_each_loop_is_no_harm(folder, epochs, kind):
    data = make(folder)
    found = []
    for workers in (1, 2, 2):
        torch.manual_seed(0)
        it = kind(data, batch_size=BATCH, num_workers=workers)
        found.append(ids(it))
    assert found == epochs[:3]


def test_batches_in_any_order_have_no_state(folder):
    with pytest.raises(ConfigError, match="in_order=False"):
        StreamingDataLoader(make(folder), in_order=False)
    assert StreamingDataLoader(make(folder)).batch_size == BATCH


def test_a_timeout_needs_workers(folder):
    with pytest.raises(ConfigError, match="timeout= is of worker processes"):
        StreamingDataLoader(make(folder), timeout=5)
    assert StreamingDataLoader(make(folder), timeout=0).num_workers == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_goes_on_with_other_proportions(folder, workers):
    streams = [streamplug.Stream(local=folder), streamplug.Stream(local=folder)]
    data = StreamingDataset(streams=streams, batch_size=BATCH, curriculum={0: [1, 0]})
    it = StreamingDataLoader(data, num_workers=workers)
    loop = iter(it)
    for _ in range(3):
        next(loop)
    data.set_proportions([0, 1])
    state = it.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (0, 3 * BATCH)
    rest = [batch["id"].tolist() for batch in loop]
    assert rest[0] == [0, 1, 2, 3]  # of the second stream
    resumed = StreamingDataset(streams=streams, batch_size=BATCH, curriculum={0: [1, 0]})
    resumed.load_state_dict(state)
    resumed.set_proportions([0, 1])
    assert [batch["id"].tolist() for batch in resumed.batches()] == rest


def test_a_loop_that_fails_to_start_leaves_the_state_alone(folder, epochs):
    def fail(worker):
        raise OSError("no")

    it = loader(folder, 1)
    ids(it)
    before = it.state_dict()
    it.worker_init_fn = fail
    with pytest.raises(OSError, match="no"):
        ids(it)
    assert it.state_dict() == before
    it.worker_init_fn = None
    assert ids(it) == epochs[1]


def test_more_workers_than_batches_are_no_harm(folder):
    it = loader(folder, workers=3, batch_size=32)
    assert [len(batch) for batch in ids(it)] == [32, 32]
    assert sorted({i for batch in ids(it) for i in batch}) == list(range(SIZE))


def test_loops_with_and_without_workers_may_alternate(folder, epochs):
    dataset = make(folder)
    found = [
        ids(DataLoader(dataset, batch_size=BATCH, num_workers=workers)) for workers in (2, 0, 3, 1)
    ]
    assert found == epochs


@pytest.mark.parametrize(
    ("before", "after", "own"), [(2, 0, {}), (1, 2, {"persistent_workers": True})]
)
def test_the_number_of_workers_may_change_between_loops(folder, epochs, before, after, own):
    it = loader(folder, workers=before, **own)
    found = [ids(it)]
    it.num_workers = after
    assert [*found, ids(it)] == epochs[:2]


@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_that_was_broken_off_is_followed_by_the_next(folder, epochs, kind, persistent):
    it = kind(make(folder), batch_size=BATCH, num_workers=2, persistent_workers=persistent)
    for _ in it:
        break
    assert ids(it) == epochs[1]
    assert ids(it) == epochs[2]


class SlowStart:
    """Keeps one worker from beginning for a while, the first time only."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, worker: int) -> None:
        if worker == 1 and not self.mark.exists():
            self.mark.touch()
            time.sleep(0.7)


@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
def test_a_worker_that_was_stopped_before_it_began_is_not_an_epoch_behind(
    folder, epochs, kind, tmp_path
):
    slow = SlowStart(tmp_path / "mark")
    it = kind(make(folder), batch_size=BATCH, num_workers=2, worker_init_fn=slow)
    for _ in it:
        break
    assert slow.mark.exists()
    assert ids(it) == epochs[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_that_is_set_again_for_each_epoch_is_no_harm(folder, epochs, workers):
    it = loader(folder, workers)
    found = []
    for _ in range(3):
        torch.manual_seed(5)
        found.append(ids(it))
    assert found == epochs[:3]


def test_a_generator_that_starts_again_is_no_harm(folder, epochs):
    dataset = make(folder)
    found = []
    for _ in range(3):
        generator = torch.Generator().manual_seed(1)
        found.append(ids(DataLoader(dataset, batch_size=BATCH, num_workers=2, generator=generator)))
    assert found == epochs[:3]


# -- state --------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("workers", "again"), [(0, 2), (2, 0), (2, 3)])
def test_a_run_continues_where_it_stood(folder, epochs, workers, again, persistent):
    first = loader(folder, workers, persistent_workers=persistent and workers > 0)
    ids(first)
    it = iter(first)
    for _ in range(5):
        next(it)
    saved = json.loads(json.dumps(first.state_dict()))
    assert (saved["epoch"], saved["sample_in_epoch"]) == (1, 5 * BATCH)
    second = loader(folder, again, persistent_workers=persistent and again > 0)
    second.load_state_dict(saved)
    assert second.state_dict() == saved
    assert ids(second) == epochs[1][5:]
    assert ids(second) == epochs[2]
    state = second.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (3, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_states_between_all_batches_are_exact(folder, epochs, workers):
    it = loader(folder, workers)
    states = [it.state_dict() for _ in it]
    assert [s["sample_in_epoch"] for s in states] == [BATCH * (n + 1) for n in range(STEPS)]
    for number in (0, 7, STEPS - 1):
        again = loader(folder, 0)
        again.load_state_dict(states[number])
        assert ids(again) == epochs[0][number + 1 :]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_epoch_counts_from_its_beginning(folder, epochs, workers):
    it = loader(folder, workers)
    it.load_state_dict(make(folder).state_dict(num_samples=6 * BATCH))
    for number, _ in enumerate(it):
        state = it.state_dict()
        assert (state["epoch"], state["sample_in_epoch"]) == (0, (7 + number) * BATCH)
    assert ids(it) == epochs[1]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_state_can_be_loaded_in_the_middle_of_a_run(folder, epochs, persistent):
    it = loader(folder, 2, persistent_workers=persistent)
    for number, _ in enumerate(it):
        if number == 2:
            saved = it.state_dict()
        if number == 8:
            break
    it.load_state_dict(saved)
    assert ids(it) == epochs[0][3:]
    assert ids(it) == epochs[1]


def test_persistent_workers_take_over_the_canonical_nodes_of_a_state(folder):
    it = loader(folder, 2, persistent_workers=True)
    ids(it)
    other = make(folder, num_canonical_nodes=4)
    it.load_state_dict({**other.state_dict(), "epoch": 0})
    assert ids(it) == ids(other.batches())


def test_before_the_first_batch_the_state_is_that_of_the_data_set(folder):
    it = loader(folder)
    assert it.state_dict() == it.dataset.state_dict()
    assert it.state_dict()["sample_in_epoch"] == 0


def test_a_data_set_that_workers_read_does_not_know_its_state(folder):
    it = DataLoader(make(folder), batch_size=BATCH, num_workers=1)
    next(iter(it))
    with pytest.raises(StateError, match=r"read by loader workers.*use StreamingDataLoader\.state"):
        it.dataset.state_dict()
    assert it.dataset.state_dict(num_samples=8)["sample_in_epoch"] == 8


def test_a_data_set_that_a_loader_without_workers_reads_knows_its_state(folder):
    dataset = make(folder)
    it = iter(DataLoader(dataset, batch_size=BATCH))
    for _ in range(3):
        next(it)
    assert dataset.state_dict()["sample_in_epoch"] == 3 * BATCH


def test_a_state_that_does_not_fit_is_refused(folder):
    it = loader(folder)
    saved = {**it.state_dict(), "shuffle_seed": 5}
    with pytest.raises(StateError, match=r"shuffle_seed: saved 5, now 9176"):
        it.load_state_dict(saved)


@pytest.mark.parametrize(("workers", "ranks"), [(0, 2), (2, 4)])
def test_a_state_moves_to_other_ranks(folder, epochs, workers, ranks):
    first = loader(folder, 2)
    it = iter(first)
    for _ in range(5):
        next(it)
    saved = first.state_dict()
    found = []
    for rank in range(ranks):
        world = World(ranks_per_node=ranks, rank=rank)
        again = loader(folder, workers, batch_size=BATCH // ranks, world=world)
        again.load_state_dict(saved)
        found.append(ids(again))
        assert again.state_dict()["epoch"] == 1
    steps = [sorted(i for part in parts for i in part) for parts in zip(*found, strict=True)]
    assert steps == [sorted(step) for step in epochs[0][5:]]


def test_a_state_of_mosaicml_streaming_is_understood(folder, epochs):
    it = loader(folder, 2)
    it.load_state_dict(
        {
            "epoch": 2,
            "sample_in_epoch": 8,
            "num_canonical_nodes": 1,
            "shuffle_seed": 9176,
            "initial_physical_nodes": 1,
        }
    )
    assert ids(it) == epochs[2][2:]


@pytest.mark.parametrize("duplicate", [copy.copy, lambda d: pickle.loads(pickle.dumps(d))])
def test_a_copy_goes_on_by_itself(folder, epochs, duplicate):
    dataset = make(folder)
    ids(dataset.batches())
    other = duplicate(dataset)
    assert type(other) is StreamingDataset
    assert ids(other.batches()) == epochs[1]
    assert ids(DataLoader(other, batch_size=BATCH, num_workers=2)) == epochs[2]
    batches = dataset.batches()
    first = next(batches)
    other.load_state_dict(make(folder).state_dict())
    assert [*ids([first]), *ids(batches)] == epochs[1]


# -- the rest -----------------------------------------------------------------


def test_the_loader_takes_or_gives_the_batch_size(folder):
    dataset = make(folder, batch_size=None)
    assert len(next(iter(StreamingDataLoader(dataset, batch_size=7)))["id"]) == 7
    assert dataset.batch_size == 7
    with pytest.raises(
        ConfigError,
        match=r"batch_size=4 differs from batch_size=7 of the data set, .* give both the same number",
    ):
        StreamingDataLoader(dataset, batch_size=4)


class Marked(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        return {**super().__getitem__(at), "marked": True}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subclass_that_changes_samples_is_honoured(folder, epochs, workers):
    dataset = Marked(local=folder, shuffle=True, batch_size=BATCH)
    batches = list(DataLoader(dataset, batch_size=BATCH, num_workers=workers))
    assert ids(batches) == epochs[0]
    assert all(batch["marked"].all() for batch in batches)


def test_random_access_goes_with_samplers_of_torch(folder):
    dataset = make(folder)
    assert dataset[torch.tensor(3).item()]["id"] == 3
    assert [s["id"] for s in dataset[torch.tensor([3, 1])]] == [3, 1]


def test_the_world_is_taken_from_the_process_group(folder, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    found = ids(make(folder).batches())
    world = World(ranks_per_node=2, rank=1)
    assert found == ids(make(folder, world=world).batches())
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert ids(make(folder).batches()) == ids(make(folder, world=World()).batches())
    monkeypatch.setenv("WORLD_SIZE", "2")  # without RANK, as Lightning sets it
    assert ids(make(folder).batches()) == found
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    dataset = make(folder)  # a Lightning program makes it before the group
    with pytest.raises(ConfigError, match="WORLD_SIZE=2 without RANK"):
        next(dataset.batches())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert ids(dataset.batches()) == found


@pytest.mark.parametrize(("tasks", "nodes"), [("4", 2), ("2", 1)])
def test_a_launcher_tells_the_nodes_of_a_process_group_if_it_is_theirs(
    folder, monkeypatch, tasks, nodes
):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": tasks, "SLURM_STEP_NUM_NODES": "2"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    assert make(folder).session.world == World(nodes, 4 // nodes, rank=3)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_a_cache(folder, epochs, tmp_path, workers):
    dataset = make(folder, local=str(tmp_path / "cache"), remote=folder)
    it = DataLoader(dataset, batch_size=BATCH, num_workers=workers)
    assert [ids(it), ids(it)] == epochs[:2]
    found = Counter(path.suffix for path in (tmp_path / "cache").iterdir())
    assert found[".mds"] == dataset.num_shards
    assert found[".tmp"] == 0


def test_an_error_in_a_worker_reaches_the_loop(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "shard.00001.mds").unlink()
    it = iter(DataLoader(make(str(tmp_path / "copy")), batch_size=BATCH, num_workers=2))
    with pytest.raises(NotFound, match=r"shard 1: .*shard\.00001\.mds does not exist"):
        list(it)
    # torch's frames of the error hold each other, and so the workers, until they are collected.
    it._shutdown_workers()


def shared_memory(processes: set[int]) -> set[str]:
    """Return the blocks of some processes: other tests, which run meanwhile, have some, too."""
    names = (path.name for path in Path("/dev/shm").glob("torch_*"))
    return {name for name in names if int(name.split("_")[1]) in processes}


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_nothing_is_left_behind(folder, tmp_path, broken):
    before = shared_memory({os.getpid()})
    it, processes = loader(folder, 2, remote=folder, local=str(tmp_path / "cache")), {os.getpid()}
    for _ in it:
        processes |= {worker.pid for worker in multiprocessing.active_children()}
        if broken:
            break
    end = time.monotonic() + 30  # threads that have nothing to do end after a moment
    while (left := loop_threads()) != []:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    del it
    assert len(processes) > 2
    assert shared_memory(processes) <= before
