from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import StateError
from streamplug.plan import DatasetFingerprint, Position, Segment, state
from streamplug.types import World
from tests.states import values, with_values

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


FIRST = Segment(Position(), World(1, 4), 16, 2)


def save(identity=IDENTITY, epoch=0, done=0, segments=(FIRST,), **options):
    saved = state.save(identity, Position(epoch, done), segments, **options)
    return json.loads(json.dumps(saved))


def load(saved, identity=IDENTITY):
    return state.load(state.unpack(saved), identity)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_was_saved_is_loaded(epoch, step):
    assert load(save(IDENTITY, epoch, 16 * step)) == Position(epoch, 16 * step)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.sampled_from([1, 2, 4, 8]))
def test_batches_that_vary_in_size_are_counted(epoch, step, ranks):
    varies = replace(IDENTITY, global_batch=0, micro_batches=8)
    segment = replace(FIRST, global_batch=8)
    saved = save(varies, epoch, step * ranks, [segment])
    assert saved["batch_in_epoch"] == step * ranks
    position = load(saved, varies)
    assert position == Position(epoch, step * ranks)
    state.check_between_steps(position, segment, varies, ranks)
    if ranks > 1:
        inside = Position(epoch, step * ranks + 1)
        with pytest.raises(StateError, match=f"inside a step of {ranks} batches"):
            state.check_between_steps(inside, segment, varies, ranks)
    with pytest.raises(StateError, match="cannot be divided among 3 ranks"):
        state.check_between_steps(position, segment, varies, 3)


def test_a_state_is_numbers_and_one_text():
    saved = save(IDENTITY, 3, 32)
    text = json.loads(saved.pop("order"))
    assert saved == {
        "version": 2,
        "epoch": 3,
        "sample_in_epoch": 32,
        "initial_physical_nodes": 1,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
    }
    own = IDENTITY.to_state()
    assert text == {key: own[key] for key in own.keys() - saved.keys()}
    assert values(save(depends_on_world=True))["initial_world"] == [1, 4]
    known = replace(IDENTITY, fingerprint=DatasetFingerprint("00ff", [7, 5], ["aa", "bb"]))
    more = {"shard_counts": [7, 5], "shard_digests": ["aa", "bb"]}
    assert values(save(known, 3, 32)) == {**values(save(IDENTITY, 3, 32)), **more}


CHANGES = [
    FIRST,
    replace(FIRST, start=Position(0, 32), proportions=(0.5, 0.25), by_hand=True),
    replace(FIRST, start=Position(2), proportions=(0.5, 0.25)),
    replace(FIRST, start=Position(2, 160), proportions=(1.0, 3.0), by_hand=True),
]


def read(saved, first=FIRST, sizes=(600, 400)):
    return state.read_segments(
        values(saved), first, sizes, lambda step, _: Position(step // 63, step % 63 * 16)
    )


def test_segments_are_saved_and_read():
    saved = save(IDENTITY, 3, 32, CHANGES)
    assert values(saved)["segments"] == [
        {"epoch": 0, "done": 32, "proportions": [0.5, 0.25]},
        {"epoch": 2, "done": 0, "proportions": [0.5, 0.25], "planned": True},
        {"epoch": 2, "done": 160, "proportions": [1.0, 3.0]},
    ]
    assert read(saved) == CHANGES
    planned = [replace(FIRST, proportions=(1.0, 0.0)), *CHANGES[2:]]
    assert read(save(IDENTITY, 3, 32, planned)) == planned
    batches = [replace(FIRST, global_batch=24), replace(FIRST, start=Position(0, 48))]
    saved = save(IDENTITY, 3, 32, batches)
    assert values(saved)["segments"] == [
        {"epoch": 0, "done": 0, "global_batch": 24},
        {"epoch": 0, "done": 48, "global_batch": 16},
    ]
    assert read(saved) == batches


@pytest.mark.parametrize(
    "change",
    [
        {"done": 33},
        {"done": -16},
        {"epoch": None},
        {"proportions": None},
        {"proportions": [1]},
        {"global_batch": 0},
        {"planned": "no"},
    ],
)
def test_a_damaged_segment_is_refused(change):
    saved = save(IDENTITY, 3, 32, CHANGES)
    first, *others = values(saved)["segments"]
    with pytest.raises(StateError, match=r"the state's segments .* are invalid"):
        read(with_values(saved, segments=[{**first, **change}, *others]))


def test_a_text_without_a_version_is_refused():
    for saved in ({**save(), "version": None}, {k: v for k, v in save().items() if k != "version"}):
        with pytest.raises(StateError, match="has no version"):
            state.unpack(saved)


def test_a_state_is_small():
    streams = 8
    many = replace(
        IDENTITY,
        streams=[10**9] * streams,
        choose=[10**9] * streams,
        fingerprint=DatasetFingerprint(
            "00ff" * 4, [10**5] * streams, ["0123456789abcdef"] * streams
        ),
    )
    changes = [
        replace(FIRST, start=Position(n, 10**9), proportions=(0.123456789,) * streams, by_hand=True)
        for n in range(11)
    ]
    size = len(json.dumps(save(many, 11, 0, [FIRST, *changes[1:]], trainer_epoch=3)))
    assert size <= 1000 + 11 * (100 + 20 * streams)


@pytest.mark.parametrize("order", [None, 3, "", "{", "[]", "[" * 10**6])
def test_a_damaged_text_is_refused(order):
    saved = {**save(), "order": order}
    with pytest.raises(StateError, match=r"the state has order=.* expected the text"):
        state.unpack(saved)


def test_a_state_of_version_1_is_read():
    past = [
        {"step": 0, "proportions": [1, 1]},
        {"step": 64, "proportions": [0.5, 0.25], "by_hand": True},
    ]
    saved = {"version": 1, "curriculum": past, "curriculum_changes": 2}
    assert read(saved) == [
        replace(FIRST, proportions=(1.0, 1.0)),
        replace(FIRST, start=Position(1, 16), proportions=(0.5, 0.25), by_hand=True),
    ]
    assert read({"version": 1, "curriculum_changes": 0}) == [FIRST]
    with pytest.raises(StateError, match=r"2 of 3 changes of its curriculum: it was not loaded"):
        read({**saved, "curriculum_changes": 3})
    for damaged in (
        [7],
        [{"step": 3}],
        [{"step": 3, "proportions": [1]}],
        [{"proportions": [1, 1]}],
    ):
        with pytest.raises(StateError, match=r"segments|curriculum"):
            read({"version": 1, "curriculum": damaged})


@pytest.mark.parametrize("name", [name for name in OTHER if name != "shards"])
def test_a_state_of_another_run_is_refused_by_what_differs(name):
    saved = save(IDENTITY, 0, 16)
    now = replace(IDENTITY, **{name: OTHER[name]})
    with pytest.raises(StateError) as caught:
        load(saved, now)
    text = (
        f"the state is of another run: {name}: saved {values(saved)[name]!r}, now {OTHER[name]!r}"
    )
    assert str(caught.value).partition(" (")[0] == text


def test_all_differences_are_named():
    with pytest.raises(StateError) as caught:
        load(save(IDENTITY), state.OrderIdentity(**OTHER))
    names = [name for name in OTHER if name != "shards"]
    assert all(f"{name}: saved" in str(caught.value) for name in names)


CONTENTS = DatasetFingerprint("00ff", [7, 5], ["aa", "bb"])
VIEW = {"view": "TokenBlocks", "column": "tokens", "length": 32, "extras": ["targets"]}
ROWS = replace(CONTENTS, digest="00fe", tokens=VIEW)


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
            replace(CONTENTS, digest="00fd", tokens={**VIEW, "extras": []}),
            "tokens.extras: saved ['targets'], now []",
        ),
        (
            ROWS,
            replace(CONTENTS, digest="00fd", tokens={**VIEW, "column": "ids"}),
            "tokens.column: saved 'tokens', now 'ids'",
        ),
        (ROWS, replace(ROWS, digest="00fd"), "documents: their lengths differ from those of the state"),
    ],
)  # fmt: skip
def test_other_contents_are_told_in_words(before, now, text):
    saved = save(replace(IDENTITY, shards=before.digest, fingerprint=before), 0, 16)
    with pytest.raises(StateError) as caught:
        load(saved, replace(IDENTITY, shards=now.digest, fingerprint=now))
    assert str(caught.value).startswith(f"the state is of another run: {text}")
    assert not any(digest in str(caught.value) for digest in ("00ff", "00fe", "00fd"))


@pytest.mark.parametrize("fingerprint", [CONTENTS, ROWS])
def test_a_state_of_an_earlier_version_still_loads(fingerprint):
    saved = save(IDENTITY, 0, 16)
    now = replace(IDENTITY, fingerprint=fingerprint)
    assert load(saved, now) == Position(0, 16)
    with pytest.raises(
        StateError, match=r"shards: .* was saved by an earlier version without details"
    ):
        load(saved, replace(now, shards="00fe"))


@pytest.mark.parametrize("value", [None, 3, "x", {}, [[]]])
@pytest.mark.parametrize("name", ["shard_counts", "shard_digests", "tokens"])
def test_damaged_notes_do_not_hide_the_error(name, value):
    saved = with_values(save(replace(IDENTITY, fingerprint=ROWS), 0, 16), **{name: value})
    with pytest.raises(StateError, match="the state is of another run"):
        load(saved, replace(IDENTITY, shards="00fe", fingerprint=ROWS))
    assert load(saved, replace(IDENTITY, fingerprint=ROWS)) == Position(0, 16)


def test_of_long_lists_the_entries_that_differ_are_named():
    before, now = [100] * 50, [100] * 50
    now[40] = 90
    saved = save(replace(IDENTITY, streams=before), 0, 16)
    with pytest.raises(StateError, match=r"streams: \[40\] saved 100, now 90 \(samples of each"):
        load(saved, replace(IDENTITY, streams=now))


@pytest.mark.parametrize("name", list(OTHER))
def test_a_state_that_lacks_a_field_is_refused(name):
    saved = with_values(save(IDENTITY, 0, 16), **{name: None})
    with pytest.raises(StateError, match=rf"{name}: (saved None|the state has no digest)"):
        load(saved)


@pytest.mark.parametrize("version", [0, 3, "1", "2", [1]])
def test_another_version_is_refused(version):
    with pytest.raises(StateError) as caught:
        state.unpack({**save(), "version": version})
    assert str(caught.value) == f"the state has version {version!r}; this streamplug loads 1 to 2"


@pytest.mark.parametrize("value", [None, -1, 1.0, "1", True, [], 10**30, 1 << 62])
@pytest.mark.parametrize("key", ["epoch", "sample_in_epoch"])
def test_a_place_that_is_no_whole_number_is_refused(key, value):
    with pytest.raises(StateError, match=rf"the state has {key}=.*; expected a whole number"):
        load({**save(), key: value})


@pytest.mark.parametrize("sample", [1, 15, 17])
def test_a_place_inside_a_global_batch_is_refused(sample):
    with pytest.raises(StateError) as caught:
        state.check_between_steps(Position(0, sample), FIRST, IDENTITY, 16)
    assert f"at sample {sample}, inside a global batch of 16 samples" in str(caught.value)


def test_a_state_of_mosaicml_streaming_is_understood():
    saved = {
        "epoch": 4,
        "sample_in_epoch": 160,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
        "initial_physical_nodes": 1,
    }
    assert load(saved) == Position(4, 160)
    # Before the first batch it has no epoch yet; what its user counted is of no use there.
    for samples in (0, 24):
        assert load({**saved, "epoch": -1, "sample_in_epoch": samples}) == Position()
    with pytest.raises(StateError, match="the state has epoch=-2; expected a whole number"):
        load({**saved, "epoch": -2})


def test_a_state_of_mosaicml_streaming_after_a_short_last_batch_is_the_end_of_its_epoch():
    saved = {
        "epoch": 4,
        "sample_in_epoch": 1004,
        "num_canonical_nodes": 2,
        "shuffle_seed": 9176,
    }
    assert load(saved) == Position(4, 63 * 16)


@pytest.mark.parametrize("name", ["num_canonical_nodes", "shuffle_seed"])
def test_a_state_of_mosaicml_streaming_is_compared_by_what_it_has(name):
    saved = {"epoch": 4, "sample_in_epoch": 160, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    with pytest.raises(StateError, match=rf"another run: {name}: saved 7, now"):
        load({**saved, name: 7})


def test_a_state_of_mosaicml_streaming_has_no_batches_that_vary_in_size():
    saved = {"epoch": 4, "num_canonical_nodes": 2, "shuffle_seed": 9176}
    varies = replace(IDENTITY, global_batch=0, micro_batches=4)
    for key, identity in (("batch_in_epoch", IDENTITY), ("sample_in_epoch", varies)):
        with pytest.raises(StateError, match="has no version"):
            load({**saved, key: 16}, identity)


def test_an_empty_state_is_refused():
    with pytest.raises(StateError, match=r"epoch=None"):
        load({})


@pytest.mark.parametrize("epoch", [None, 0, 3])
def test_the_epoch_of_a_trainer_is_read(epoch):
    assert state.read_trainer_epoch({"trainer_epoch": epoch}) == epoch


@pytest.mark.parametrize("epoch", [-1, True, 1.0, "1", 1 << 62])
def test_no_epoch_of_a_trainer_is_refused(epoch):
    with pytest.raises(StateError, match="trainer_epoch="):
        state.read_trainer_epoch({"trainer_epoch": epoch})
