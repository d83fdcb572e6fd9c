from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import StateError
from streamplug.plan import DatasetFingerprint, state

IDENTITY = state.OrderIdentity(
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
    saved = state.save(IDENTITY, epoch, 16 * step, 1, 4)
    assert state.load(json.loads(json.dumps(saved)), IDENTITY) == (epoch, 16 * step)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.sampled_from([1, 2, 4, 8]))
def test_batches_that_vary_in_size_are_counted(epoch, step, ranks):
    varies = replace(IDENTITY, global_batch=0, micro_batches=8)
    saved = state.save(varies, epoch, step * ranks, 1)
    assert saved["batch_in_epoch"] == step * ranks
    assert state.load(saved, varies, batches_per_step=ranks) == (epoch, step * ranks)
    if ranks > 1:
        with pytest.raises(StateError, match=f"inside a step of {ranks} batches"):
            state.load(
                {**saved, "batch_in_epoch": step * ranks + 1}, varies, batches_per_step=ranks
            )


def test_a_state_is_readable():
    assert state.save(IDENTITY, 3, 32, 1, 8) == {
        "version": 1,
        "epoch": 3,
        "sample_in_epoch": 32,
        "initial_physical_nodes": 1,
        "initial_batch_size": 8,
        **IDENTITY.to_state(),
    }
    known = replace(IDENTITY, fingerprint=DatasetFingerprint("00ff", [7, 5], ["aa", "bb"]))
    more = {"shard_counts": [7, 5], "shard_digests": ["aa", "bb"]}
    assert state.save(known, 3, 32, 1, 8) == {**state.save(IDENTITY, 3, 32, 1, 8), **more}


@pytest.mark.parametrize("name", [name for name in OTHER if name != "shards"])
def test_a_state_of_another_run_is_refused_by_what_differs(name):
    saved = state.save(IDENTITY, 0, 16, 1)
    now = replace(IDENTITY, **{name: OTHER[name]})
    with pytest.raises(StateError) as caught:
        state.load(saved, now)
    text = f"the state is of another run: {name}: saved {saved[name]!r}, now {OTHER[name]!r}"
    assert str(caught.value).partition(" (")[0] == text


def test_all_differences_are_named():
    with pytest.raises(StateError) as caught:
        state.load(state.save(IDENTITY, 0, 0, 1), state.OrderIdentity(**OTHER))
    names = [name for name in OTHER if name != "shards"]
    assert all(f"{name}: saved" in str(caught.value) for name in names)


CONTENTS = DatasetFingerprint("00ff", [7, 5], ["aa", "bb"])
VIEW = {"view": "TokenBlocks", "column": "tokens", "length": 32, "extras": ["targets"]}
ROWS = CONTENTS.with_tokens("00fe", VIEW)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (
            CONTENTS,
            DatasetFingerprint("00fe", [7, 6], ["aa", "cc"]),
            "shards of each stream: saved [7, 5], now [7, 6]",
        ),
        (CONTENTS, DatasetFingerprint("00fe", [7], ["00fe"]), "streams: saved 2 streams, now 1"),
        (
            CONTENTS,
            DatasetFingerprint("00fe", [7, 5], ["aa", "cc"]),
            "shards: those of stream 1 (from 0) have other numbers of samples than in the state",
        ),
        (
            DatasetFingerprint("00ff", [7], ["00ff"]),
            DatasetFingerprint("00fe", [7], ["00fe"]),
            "shards: same number of shards as in the state, but with other numbers of samples in them",
        ),
        (CONTENTS, ROWS, "tokens: saved samples as they are stored, now rows by 'TokenBlocks'"),
        (
            ROWS,
            CONTENTS.with_tokens("00fd", {**VIEW, "extras": []}),
            "tokens.extras: saved ['targets'], now []",
        ),
        (
            ROWS,
            CONTENTS.with_tokens("00fd", {**VIEW, "column": "ids"}),
            "tokens.column: saved 'tokens', now 'ids'",
        ),
        (ROWS, replace(ROWS, digest="00fd"), "documents: their lengths differ from those of the state"),
    ],
)  # fmt: skip
def test_other_contents_are_told_in_words(before, now, text):
    saved = state.save(replace(IDENTITY, shards=before.digest, fingerprint=before), 0, 16, 1)
    saved = json.loads(json.dumps(saved))
    with pytest.raises(StateError) as caught:
        state.load(saved, replace(IDENTITY, shards=now.digest, fingerprint=now))
    assert str(caught.value).startswith(f"the state is of another run: {text}")
    assert not any(digest in str(caught.value) for digest in ("00ff", "00fe", "00fd"))


@pytest.mark.parametrize("fingerprint", [CONTENTS, ROWS])
def test_a_state_of_an_earlier_version_still_loads(fingerprint):
    saved = state.save(IDENTITY, 0, 16, 1)
    now = replace(IDENTITY, fingerprint=fingerprint)
    assert state.load(saved, now) == (0, 16)
    with pytest.raises(
        StateError, match=r"shards: .* was saved by an earlier version without details"
    ):
        state.load(saved, replace(now, shards="00fe"))


@pytest.mark.parametrize("value", [None, 3, "x", {}, [[]]])
@pytest.mark.parametrize("name", ["shard_counts", "shard_digests", "tokens"])
def test_damaged_notes_do_not_hide_the_error(name, value):
    saved = {**state.save(replace(IDENTITY, fingerprint=ROWS), 0, 16, 1), name: value}
    with pytest.raises(StateError, match="the state is of another run"):
        state.load(saved, replace(IDENTITY, shards="00fe", fingerprint=ROWS))
    assert state.load(saved, replace(IDENTITY, fingerprint=ROWS)) == (0, 16)


def test_of_long_lists_the_entries_that_differ_are_named():
    before, now = [100] * 50, [100] * 50
    now[40] = 90
    saved = state.save(replace(IDENTITY, streams=before), 0, 16, 1)
    with pytest.raises(StateError, match=r"streams: \[40\] saved 100, now 90 \(samples of each"):
        state.load(saved, replace(IDENTITY, streams=now))


@pytest.mark.parametrize("name", list(OTHER))
def test_a_state_that_lacks_a_field_is_refused(name):
    saved = state.save(IDENTITY, 0, 16, 1)
    del saved[name]
    with pytest.raises(StateError, match=rf"{name}: (saved None|the state has no digest)"):
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
    assert state.load(saved, IDENTITY) == (4, 160)
    # Before the first batch it has no epoch yet; what its user counted is of no use there.
    for samples in (0, 24):
        assert state.load({**saved, "epoch": -1, "sample_in_epoch": samples}, IDENTITY) == (0, 0)
    with pytest.raises(StateError, match="the state has epoch=-2; expected a whole number"):
        state.load({**saved, "epoch": -2}, IDENTITY)


def test_a_state_of_mosaicml_streaming_after_a_short_last_batch_is_the_end_of_its_epoch():
    saved = {
        "epoch": 4,
        "sample_in_epoch": 1004,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
    }
    assert state.load(saved, IDENTITY) == (4, 63 * 16)
    with pytest.raises(StateError, match="at sample 996, inside a global batch of 16 samples"):
        state.load({**saved, "sample_in_epoch": 996}, IDENTITY)


@pytest.mark.parametrize("name", ["num_canonical_nodes", "shuffle_seed"])
def test_a_state_of_mosaicml_streaming_is_compared_by_what_it_has(name):
    saved = {"epoch": 4, "sample_in_epoch": 160, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    with pytest.raises(StateError, match=rf"another run: {name}: saved 7, now"):
        state.load({**saved, name: 7}, IDENTITY)


def test_a_state_of_mosaicml_streaming_has_no_batches_that_vary_in_size():
    saved = {"epoch": 4, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    varies = replace(IDENTITY, global_batch=0, micro_batches=4)
    for key, identity in (("batch_in_epoch", IDENTITY), ("sample_in_epoch", varies)):
        with pytest.raises(StateError, match="has no version"):
            state.load({**saved, key: 16}, identity)


def test_an_empty_state_is_refused():
    with pytest.raises(StateError, match=r"epoch=None"):
        state.load({}, IDENTITY)


@pytest.mark.parametrize("epoch", [None, 0, 3])
def test_the_epoch_of_a_trainer_is_read(epoch):
    assert state.read_trainer_epoch({"trainer_epoch": epoch}) == epoch


@pytest.mark.parametrize("epoch", [-1, True, 1.0, "1", 1 << 62])
def test_no_epoch_of_a_trainer_is_refused(epoch):
    with pytest.raises(StateError, match="trainer_epoch="):
        state.read_trainer_epoch({"trainer_epoch": epoch})
