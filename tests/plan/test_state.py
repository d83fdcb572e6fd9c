from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import StateError
from streamplug.plan import state

IDENTITY = state.Identity(
    size=1000,
    shards="00ff",
    global_batch=16,
    epoch_size=1000,
    streams=[600, 400],
    shuffle_algo="window",
    shuffle_seed=9176,
    shuffle_block_size=4096,
    num_canonical_nodes=2,
    partition_algo="elastic",
    batching_method="random",
    choose=[600, 400],
    sampling_method="balanced",
    sampling_granularity=1,
    shares=[0.6, 0.4],
)
OTHER: dict[str, Any] = {
    "size": 999,
    "shards": "00fe",
    "global_batch": 8,
    "epoch_size": 900,
    "streams": [400, 600],
    "shuffle_algo": None,
    "shuffle_seed": 0,
    "shuffle_block_size": 1,
    "num_canonical_nodes": 1,
    "partition_algo": "orig",
    "batching_method": "stratified",
    "choose": [500, 500],
    "sampling_method": "fixed",
    "sampling_granularity": 2,
    "shares": [0.5, 0.5],
}


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_was_saved_is_loaded(epoch, step):
    saved = state.save(IDENTITY, epoch, step, 1, 4)
    assert state.load(json.loads(json.dumps(saved)), IDENTITY) == (epoch, step)


def test_a_state_is_readable():
    assert state.save(IDENTITY, 3, 2, 1, 8) == {
        "version": 1,
        "epoch": 3,
        "sample_in_epoch": 32,
        "initial_physical_nodes": 1,
        "initial_batch_size": 8,
        **asdict(IDENTITY),
    }


@pytest.mark.parametrize("name", list(OTHER))
def test_a_state_of_another_run_is_refused_by_what_differs(name):
    saved = state.save(IDENTITY, 0, 1, 1)
    now = replace(IDENTITY, **{name: OTHER[name]})
    with pytest.raises(StateError) as caught:
        state.load(saved, now)
    assert str(caught.value) == (
        f"the state is of another run: {name}: saved {saved[name]!r}, now {OTHER[name]!r}"
    )


def test_all_differences_are_named():
    with pytest.raises(StateError) as caught:
        state.load(state.save(IDENTITY, 0, 0, 1), state.Identity(**OTHER))
    assert all(f"{name}: saved" in str(caught.value) for name in OTHER)


@pytest.mark.parametrize("name", list(OTHER))
def test_a_state_that_lacks_a_field_is_refused(name):
    saved = state.save(IDENTITY, 0, 1, 1)
    del saved[name]
    with pytest.raises(StateError, match=rf"{name}: saved None"):
        state.load(saved, IDENTITY)


@pytest.mark.parametrize("version", [0, 2, "1", "2", [1]])
def test_another_version_is_refused(version):
    saved = {**state.save(IDENTITY, 0, 0, 1), "version": version}
    with pytest.raises(StateError) as caught:
        state.load(saved, IDENTITY)
    assert str(caught.value) == f"the state has version {version!r}; this streamplug loads 1"


@pytest.mark.parametrize("value", [None, -1, 1.0, "1", True, [], 10**30, 1 << 62])
@pytest.mark.parametrize("key", ["epoch", "sample_in_epoch"])
def test_a_place_that_is_no_whole_number_is_refused(key, value):
    with pytest.raises(StateError, match=rf"the state has {key}=.*; expected a whole number"):
        state.load({**state.save(IDENTITY, 0, 0, 1), key: value}, IDENTITY)


@pytest.mark.parametrize("sample", [1, 15, 17])
def test_a_place_inside_a_global_batch_is_refused(sample):
    with pytest.raises(StateError) as caught:
        state.load({**state.save(IDENTITY, 0, 0, 1), "sample_in_epoch": sample}, IDENTITY)
    assert f"at sample {sample}, inside a global batch of 16 samples" in str(caught.value)


def test_a_state_of_mosaicml_streaming_is_understood():
    saved = {
        "epoch": 4,
        "sample_in_epoch": 160,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
        "initial_physical_nodes": 1,
    }
    assert state.load(saved, IDENTITY) == (4, 10)


def test_a_state_of_mosaicml_streaming_after_a_short_last_batch_is_the_end_of_its_epoch():
    saved = {
        "epoch": 4,
        "sample_in_epoch": 1004,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
    }
    assert state.load(saved, IDENTITY) == (4, 63)
    with pytest.raises(StateError, match="at sample 996, inside a global batch of 16 samples"):
        state.load({**saved, "sample_in_epoch": 996}, IDENTITY)


@pytest.mark.parametrize("name", ["num_canonical_nodes", "shuffle_seed"])
def test_a_state_of_mosaicml_streaming_is_compared_by_what_it_has(name):
    saved = {"epoch": 4, "sample_in_epoch": 160, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    with pytest.raises(StateError, match=rf"another run: {name}: saved 7, now"):
        state.load({**saved, name: 7}, IDENTITY)


def test_an_empty_state_is_refused():
    with pytest.raises(StateError, match=r"epoch=None"):
        state.load({}, IDENTITY)
