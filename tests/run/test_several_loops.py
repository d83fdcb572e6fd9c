"""Loops over one data set that run side by side, without torch."""

from __future__ import annotations

from itertools import chain

import pytest

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from tests.mixing import needs_mixing

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


def place(dataset):
    state = dataset.state_dict()
    return state["epoch"], state["sample_in_epoch"]


def order(dataset, epoch):
    steps = range(SIZE // BATCH)
    return [[use.sample for use in dataset.explain(step, epoch=epoch)] for step in steps]


def read(batches):
    return [batch["n"].tolist() for batch in batches]


@pytest.mark.parametrize("iterate", [iter, StreamingDataset.batches])
def test_the_end_of_a_loop_does_not_move_a_later_one(dataset, iterate):
    earlier, loop = iterate(dataset), dataset.batches()
    end_earlier(earlier, loop)
    assert place(dataset) == (1, 0)  # it was advanced last
    assert read(loop) == order(dataset, 1)[3:]
    assert place(dataset) == (2, 0)


def test_the_state_is_that_of_the_loop_that_was_advanced_last(dataset):
    loops = [dataset.batches(), iter(dataset)]
    for count in range(1, 5):
        next(loops[0])
        assert place(dataset) == (0, count * BATCH)
        for _ in range(BATCH):
            next(loops[1])
        assert place(dataset) == (1, count * BATCH)
    next(loops[1])  # within a batch
    assert place(dataset) == (1, 4 * BATCH)


def test_a_loop_within_another_one_does_not_move_the_epochs_of_the_outer_one(dataset):
    loop = dataset.batches()
    found = [next(loop)["n"].tolist()]
    assert [sample["n"] for sample in dataset] == list(chain(*order(dataset, 1)))
    found.append(next(loop)["n"].tolist())
    assert place(dataset) == (0, 2 * BATCH)
    found += read(loop)
    assert found == order(dataset, 0)
    assert place(dataset) == (1, 0)
    assert read(dataset.batches()) == order(dataset, 1)


def test_a_look_at_a_batch_does_not_move_the_loop_around_it(dataset):
    found, looks = [], []
    for batch in dataset.batches():
        found.append(batch["n"].tolist())
        if len(found) in (2, 3, 7):
            looks.append(next(dataset.batches())["n"].tolist())
    assert found == order(dataset, 0)
    assert looks == [order(dataset, 1)[0]] * 3
    assert place(dataset) == (1, 0)


def test_a_loop_begins_with_its_first_batch(dataset):
    loops = [dataset.batches() for _ in range(3)]
    assert read(loops[2]) == order(dataset, 0)
    assert read(loops[0]) == order(dataset, 1)
    assert read(loops[1]) == order(dataset, 2)


@pytest.mark.parametrize(
    "event", ["state", "resize", pytest.param("proportions", marks=needs_mixing)]
)
def test_a_loop_that_has_yielded_its_last_batch_ends_whatever_comes_then(tmp_path, event):
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set") as writer:
        writer.write_batch({"n": list(range(SIZE))})
    streams = [Stream(local=str(tmp_path / "set"), proportion=0.5) for _ in range(2)]
    dataset = StreamingDataset(streams=streams, batch_size=BATCH, epoch_size=SIZE)
    loop = dataset.batches()
    for _ in range(SIZE // BATCH):
        next(loop)
    state, later = dataset.state_dict(), dataset.batches()
    next(later)
    if event == "state":
        dataset.load_state_dict(state)
    elif event == "resize":
        dataset.resize(World(1, 2))
    else:
        dataset.set_proportions([0.9, 0.1])
    assert list(loop) == []
    if event == "state":
        with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
            next(later)
    else:
        assert len(list(later)) == SIZE // BATCH - 1


def test_a_state_warns_once_of_another_loop_that_is_not_over(dataset, caplog):
    outer, inner = dataset.batches(), dataset.batches()
    next(outer)
    dataset.state_dict()
    next(inner)
    assert not caplog.records
    for _ in range(2):
        dataset.state_dict()
    [record] = caplog.records
    assert "at epoch 1, sample 4; another one is at epoch 0, sample 4" in record.getMessage()
    dataset.load_state_dict(dataset.state_dict())
    outer, inner = dataset.batches(), dataset.batches()
    next(outer)
    next(inner)
    outer.close()
    dataset.state_dict()
    assert len(caplog.records) == 1


def test_a_loop_left_before_a_state_was_loaded_is_not_taken_for_one_over_its_epoch(dataset):
    list(dataset)
    state, left = dataset.state_dict(), dataset.batches()
    next(left)
    dataset.load_state_dict({**state, "epoch": 0})
    earlier, loop = dataset.batches(), dataset.batches()
    end_earlier(earlier, loop)
    assert place(dataset) == (1, 0)
    assert read(loop) == order(dataset, 1)[3:]


def test_resize_takes_a_loop_beside_one_that_was_left_within_a_batch(dataset):
    state, left = dataset.state_dict(), iter(dataset)
    for _ in range(BATCH + 1):
        next(left)
    dataset.load_state_dict(state)
    samples = iter(dataset)
    read = [next(samples) for _ in range(BATCH)]
    dataset.resize(dataset.session.world)
    assert len(read + list(samples)) == SIZE
