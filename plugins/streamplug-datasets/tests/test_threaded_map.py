from __future__ import annotations

import threading

import pytest
from streamplug_datasets.threaded_map import map_samples

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError


@pytest.fixture
def dataset(tmp_path):
    with MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        for n in range(48):
            out.write({"n": n})
    return lambda: StreamingDataset(local=str(tmp_path), batch_size=4, shuffle=True)


def number(sample):
    return sample["n"]


def test_samples_are_changed_in_their_order_and_the_state_is_that_of_the_last(dataset):
    whole = [number(sample) for sample in dataset()]
    begun = dataset()
    samples = map_samples(begun, number, num_threads=3)
    taken = [next(samples) for _ in range(20)]
    state = begun.state_dict()
    samples.close()
    again = dataset()
    again.load_state_dict(state)
    assert state["sample_in_epoch"] == 20
    assert taken + list(map_samples(again, number, num_threads=1)) == whole
    assert again.session.next_state()["epoch"] == 1


def test_threads_work_at_once_and_not_far_ahead(dataset):
    together, asked = threading.Barrier(2), []

    def meet(sample):
        asked.append(sample)
        together.wait(60)  # blocks have whole batches of four
        return sample

    samples = map_samples(dataset(), meet, num_threads=2)
    for given in range(1, 49):
        next(samples)
        assert len(asked) <= given + 2


def test_what_fails_is_raised_where_the_sample_would_come(dataset):
    first, second, *_ = (number(sample) for sample in dataset())

    def refuse(sample):
        if sample["n"] == second:
            raise OSError("no such video")
        return sample["n"]

    samples = map_samples(dataset(), refuse, num_threads=2)
    assert next(samples) == first
    with pytest.raises(OSError, match="no such video"):
        next(samples)
    with pytest.raises(ConfigError, match="num_threads=0"):
        next(map_samples(dataset(), number, num_threads=0))


def test_a_data_set_tells_where_it_stands(dataset):
    session = dataset().session
    assert (session.batch, session.process.ranks) == (4, 1)
    assert session.next_step() == (0, 0)
    loop = session.begin()
    assert (loop.epoch, loop.step) == (0, 0)
    assert session.next_step() == (1, 0)
    assert session.state_at(0, 5)["sample_in_epoch"] == 20
