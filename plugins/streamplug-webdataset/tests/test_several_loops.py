"""Loops over one pipeline or loader that run side by side."""

from __future__ import annotations

import pytest
import streamplug_webdataset as wds

from streamplug.errors import ConfigError

SIZE = 30


@pytest.fixture(scope="module")
def tars(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tars")
    with wds.TarWriter(folder / "0.tar") as out:
        for n in range(SIZE):
            out.write({"__key__": f"{n:03d}", "cls": n})
    return f"{folder}/0.tar"


def number(sample):
    return sample["cls"]


def pipeline(tars):
    return wds.WebDataset(tars, shardshuffle=False).shuffle(SIZE).decode().map(number)


KINDS = {
    "pipeline": pipeline,
    "loader": lambda tars: wds.WebLoader(pipeline(tars), batch_size=None),
    "workers": lambda tars: wds.WebLoader(pipeline(tars), batch_size=None, num_workers=1),
}


def rest(kind, tars, state):
    resumed = KINDS[kind](tars)
    resumed.load_state_dict(state)
    return list(resumed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_within_another_one_does_not_move_it(tars, kind):
    outputs = KINDS[kind](tars)
    loop = iter(outputs)
    first = [next(loop)]
    list(outputs)
    first.append(next(loop))
    state = outputs.state_dict()
    left = list(loop)
    assert sorted(first + left) == list(range(SIZE))
    assert rest(kind, tars, state) == left
    assert outputs.state_dict()["epoch"] == 1
    assert list(outputs) == rest(kind, tars, {**state, "epoch": 1, "sample_in_epoch": 0})


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_loop_does_not_move_a_later_one(tars, kind):
    outputs = KINDS[kind](tars)
    earlier, loop = iter(outputs), iter(outputs)
    next(earlier)
    for _ in range(3):
        next(loop)
    list(earlier)
    state = outputs.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)  # of the loop that yielded last
    left = [next(loop)]
    state = outputs.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 4)
    left += loop
    assert rest(kind, tars, state) == left[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_does_not_go_on_after_a_state_was_loaded_and_another_loop_began(tars, kind):
    outputs = KINDS[kind](tars)
    state, loop = outputs.state_dict(), iter(outputs)
    next(loop)
    outputs.load_state_dict(state)
    new = iter(outputs)
    for _ in range(3):
        next(new)
    with pytest.raises(ConfigError, match="leave the loop and start another"):
        next(loop)
    assert rest(kind, tars, outputs.state_dict()) == list(new)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_was_left_within_another_one_is_not_resumed(tars, kind):
    outputs = KINDS[kind](tars)
    loop = iter(outputs)
    next(loop)
    next(iter(outputs))
    list(loop)
    state = outputs.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)
    assert rest(kind, tars, state) == list(outputs)
