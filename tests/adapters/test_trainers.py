"""What trainers do with a loader: count its batches, tell it their epoch, ask its data set for a state."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tests.states import values, with_values

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402, TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import ConfigError, StateError  # noqa: E402

BATCH, STEPS = 10, 5
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": np.arange(BATCH * STEPS - 3)})  # so that an epoch is filled up
    return str(out)


def make(folder: str, workers: int = 0) -> StreamingDataLoader:
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return StreamingDataLoader(dataset, num_workers=workers)


def counted(loader: StreamingDataLoader) -> list[list[int]]:
    """Return an epoch as a trainer takes it: as many batches as there are, and not one more."""
    batches = iter(loader)
    return [next(batches)["n"].tolist() for _ in range(len(loader))]


def whole(folder: str, epochs: int) -> list[list[list[int]]]:
    loader = make(folder)
    return [[batch["n"].tolist() for batch in loader] for _ in range(epochs)]


@WORKERS
def test_a_trainer_that_counts_goes_on_with_the_next_epoch(folder, workers):
    before = make(folder, workers)
    counted(before)
    state = before.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (0, BATCH * STEPS)
    after = make(folder, workers)
    after.load_state_dict(state)
    after.set_epoch(1)
    assert counted(after) == whole(folder, 2)[1]


def test_samplers_of_loaders_are_told_as_well(folder):
    loader = make(folder)
    loader.sampler.set_epoch(
        2
    )  # no state was loaded: the trainer's checkpoint is of an epoch's end
    assert counted(loader) == whole(folder, 3)[2]
    assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
)
def test_samplers_of_copies_of_loaders_are_told_as_well(folder, duplicate):
    loader = duplicate(duplicate(make(folder)))
    loader.sampler.set_epoch(2)
    assert counted(loader) == whole(folder, 3)[2]


def test_who_names_the_epoch_of_the_state_gets_its_rest(folder):
    before = make(folder)
    counted(before)
    after = make(folder)
    after.load_state_dict(before.state_dict())
    after.set_epoch(0)
    assert list(after) == []


@WORKERS
def test_within_an_epoch_and_between_epochs_nothing_changes(folder, workers):
    epochs = whole(folder, 3)
    before = make(folder, workers)
    batches = iter(before)
    next(batches)
    after = make(folder, workers)
    after.load_state_dict(before.state_dict())
    for number in (0, 1, 2):
        after.set_epoch(number + 7)  # a trainer may count from anywhere
        assert [batch["n"].tolist() for batch in after] == epochs[number][not number :]


@WORKERS
def test_a_look_at_a_batch_uses_up_a_state(folder, workers):
    epochs = whole(folder, 2)
    before = make(folder)
    next(iter(before))
    state = before.state_dict()
    after = make(folder, workers)
    after.load_state_dict(state)
    assert next(iter(after))["n"].tolist() == epochs[0][1]
    assert [batch["n"].tolist() for batch in after] == epochs[1]
    after.load_state_dict(state)
    assert next(iter(after))["n"].tolist() == epochs[0][1]
    after.load_state_dict(state)
    assert [batch["n"].tolist() for batch in after] == epochs[0][1:]


@pytest.mark.parametrize("epoch", [-1, 1.5, "1"])
def test_an_epoch_is_a_number(folder, epoch):
    with pytest.raises(ConfigError, match="epoch"):
        make(folder).set_epoch(epoch)


@WORKERS
@pytest.mark.parametrize("how", ["to its end", "counted"])
def test_no_samples_of_an_epoch_that_has_ended_are_the_next_one(folder, workers, how):
    loader = make(folder, workers)
    data: Any = loader.dataset
    assert data.state_dict(0)["epoch"] == 0
    batches = iter(loader)
    next(batches)
    assert data.state_dict(BATCH)["sample_in_epoch"] == BATCH
    assert (data.state_dict(0)["epoch"], data.state_dict(0)["sample_in_epoch"]) == (0, 0)
    for _ in range(STEPS - 1):
        next(batches)
    assert data.state_dict(BATCH * STEPS)["epoch"] == 0
    if how == "to its end":
        assert list(batches) == []
    state = data.state_dict(0)
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)
    again = make(folder, workers)
    again.load_state_dict(state)
    assert counted(again) == whole(folder, 2)[1]


def test_a_state_that_was_loaded_is_not_taken_for_the_end_of_what_was_read(folder):
    loader = make(folder)
    data: Any = loader.dataset
    counted(loader)
    data.load_state_dict({**data.state_dict(0), "epoch": 0, "sample_in_epoch": BATCH})
    assert data.state_dict(0)["epoch"] == 0


@pytest.mark.parametrize("own", [True, False])
def test_random_numbers_of_the_model_are_left_alone_by_a_loader_with_a_generator(folder, own):
    generator = torch.Generator() if own else None
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(dataset, num_workers=1, generator=generator)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert len(list(loader)) == STEPS
    assert torch.equal(torch.get_rng_state(), before) is own


class AsksInWorkers(StreamingDataset):
    def __iter__(self) -> Any:
        for sample in super().__iter__():
            self.state_dict()
            yield sample


def test_a_worker_that_asks_for_a_state_is_refused(folder):
    dataset = AsksInWorkers(local=folder, batch_size=BATCH)
    with pytest.raises(StateError, match="use StreamingDataLoader"):
        next(iter(DataLoader(dataset, batch_size=BATCH, num_workers=1)))


# -- trainers that end their epochs early, and say which epoch they start ----------


def short_epochs(loader: StreamingDataLoader, epochs: range, steps: int = 3) -> list[Any]:
    """Return the epochs of a trainer that takes a few batches of each, and names each before."""
    taken = []
    for epoch in epochs:
        loader.set_epoch(epoch)
        batches = iter(loader)
        taken.append([next(batches)["n"].tolist() for _ in range(steps)])
    return taken


@WORKERS
@pytest.mark.parametrize("named", ["loader", "sampler", "data set"])
def test_a_state_at_an_early_end_is_followed_by_the_next_epoch(folder, workers, named):
    expected = short_epochs(make(folder), range(4))
    before = make(folder, workers)
    assert short_epochs(before, range(2)) == expected[:2]
    state = before.state_dict()
    assert (state["epoch"], state["sample_in_epoch"], values(state)["trainer_epoch"]) == (1, 30, 1)
    after = make(folder, workers)
    after.load_state_dict(state)
    assert after.state_dict() == state
    names: Any = {"loader": after, "sampler": after.sampler, "data set": after.dataset}
    names[named].set_epoch(2)
    assert short_epochs(after, range(2, 4)) == expected[2:]


def test_a_state_is_of_the_epoch_of_its_latest_batch(folder):
    before = make(folder)
    short_epochs(before, range(1))
    before.set_epoch(1)  # has started, but has no batch yet
    state = before.state_dict()
    assert (state["epoch"], values(state)["trainer_epoch"]) == (0, 0)
    after = make(folder)
    after.load_state_dict(state)
    assert short_epochs(after, range(1, 2)) == short_epochs(make(folder), range(2))[1:]


def test_an_epoch_may_be_named_after_its_loop_began(folder):
    before = make(folder)
    batches = iter(before)
    next(batches)
    before.set_epoch(5)
    next(batches)
    assert values(before.state_dict())["trainer_epoch"] == 5


@WORKERS
@pytest.mark.parametrize("epoch", [1, 0], ids=["same", "counts anew"])
def test_a_state_within_an_epoch_is_followed_by_its_rest(folder, workers, epoch):
    before = make(folder, workers)
    short_epochs(before, range(2))
    after = make(folder, workers)
    after.load_state_dict(before.state_dict())
    after.set_epoch(epoch)
    assert [batch["n"].tolist() for batch in after] == whole(folder, 2)[1][3:]


def test_epochs_of_data_may_be_ahead_of_those_of_the_trainer(folder):
    """As of a short loader that a trainer repeats within its epoch beside a longer one."""
    epochs = whole(folder, 3)
    before = make(folder)
    before.set_epoch(0)
    list(before)
    next(iter(before))
    after = make(folder)
    after.load_state_dict(before.state_dict())
    after.set_epoch(1)
    assert counted(after) == epochs[2]


def test_states_without_a_trainer_have_no_epoch_of_one(folder):
    loader = make(folder)
    next(iter(loader))
    assert "trainer_epoch" not in values(loader.state_dict())
    loader.set_epoch(3)
    assert list(loader)
    assert "trainer_epoch" not in values(loader.state_dict())  # between epochs it does not matter


def test_an_invalid_epoch_in_a_state_is_refused(folder):
    loader = make(folder)
    with pytest.raises(StateError, match="trainer_epoch=-1"):
        loader.load_state_dict(with_values(loader.state_dict(), trainer_epoch=-1))


# -- a data set that a trainer reads through a loader of torch ---------------------


class Shard(IterableDataset):
    """What Accelerate and transformers wrap a data set in."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __iter__(self) -> Any:
        return iter(self.dataset)


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}]
)
def test_a_trainer_that_skips_batches_of_a_data_set_resumes_in_its_epoch(folder, options):
    dataset = Shard(StreamingDataset(local=folder, shuffle=True, batch_size=BATCH))
    loader = DataLoader(dataset, batch_size=BATCH, **options)
    epochs = whole(folder, 4)
    for epoch in (2, 3):
        dataset.set_epoch(epoch)
        dataset.set_epoch(epoch)  # Accelerate repeats it when it iterates
        batches = [batch["n"].tolist() for batch in loader]
        assert batches == epochs[epoch]
