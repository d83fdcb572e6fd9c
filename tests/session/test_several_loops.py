"""Loops over one data set that run side by side, without torch."""

from __future__ import annotations

import pytest

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError

SIZE, BATCH = 40, 4


@pytest.fixture
def dataset(tmp_path) -> StreamingDataset:
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set", max_samples_per_shard=9) as writer:
        writer.write_batch({"n": list(range(SIZE))})
    return StreamingDataset(local=str(tmp_path / "set"), batch_size=BATCH, shuffle=True)


def end_earlier(earlier, loop):
    """End a loop after three batches of one that was started later."""
    next(earlier)
    for _ in range(3):
        next(loop)
    list(earlier)


@pytest.mark.parametrize("iterate", [iter, StreamingDataset.batches])
@pytest.mark.parametrize("used", [1, 2])
def test_a_loop_does_not_go_on_after_a_state_was_loaded_and_another_loop_began(
    dataset, iterate, used
):
    state, loop = dataset.state_dict(), iterate(dataset)
    for _ in range(used):
        next(loop)
    dataset.load_state_dict(state)
    new = dataset.batches()
    for _ in range(5):
        next(new)
    with pytest.raises(ConfigError, match="leave the loop and start another"):
        list(loop)
    assert dataset.state_dict()["sample_in_epoch"] == 5 * BATCH
    assert len(list(new)) == SIZE // BATCH - 5


@pytest.mark.parametrize("iterate", [iter, StreamingDataset.batches])
def test_the_end_of_a_loop_does_not_move_a_later_one(dataset, iterate):
    earlier, loop = iterate(dataset), dataset.batches()
    end_earlier(earlier, loop)
    state = dataset.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 3 * BATCH)
    list(loop)
    assert dataset.state_dict()["epoch"] == 2


def test_a_loop_that_ends_after_one_within_it_does_not_move_the_run_back(dataset):
    loop = dataset.batches()
    next(loop)
    list(dataset)
    next(loop)
    assert dataset.state_dict()["sample_in_epoch"] == 2 * BATCH
    list(loop)
    assert dataset.state_dict()["epoch"] == 2


def test_a_loop_left_before_a_state_was_loaded_is_not_taken_for_one_over_its_epoch(dataset):
    list(dataset)
    state, left = dataset.state_dict(), dataset.batches()
    next(left)
    dataset.load_state_dict({**state, "epoch": 0})
    earlier, loop = dataset.batches(), dataset.batches()
    end_earlier(earlier, loop)
    state = dataset.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 3 * BATCH)


def test_resize_takes_a_loop_beside_one_that_was_left_within_a_batch(dataset):
    state, left = dataset.state_dict(), iter(dataset)
    for _ in range(BATCH + 1):
        next(left)
    dataset.load_state_dict(state)
    samples = iter(dataset)
    read = [next(samples) for _ in range(BATCH)]
    dataset.resize(dataset.session.world)
    assert len(read + list(samples)) == SIZE
