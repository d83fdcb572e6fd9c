"""Samples that cannot be read are substituted by others of their step, alike on all worlds."""

from __future__ import annotations

import json
import logging
from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from streamplug_testing.fakes import FailingInts, Noted
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, World
from streamplug.builtin.encodings.json import Json
from streamplug.dataset import StreamingDataset
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    DataError,
    DecodeError,
    NotFound,
    StorageError,
    TooManyBadSamplesError,
)
from streamplug.interfaces import SampleSubstituted
from streamplug.transfer import retry
from tests.mixing import needs_mixing
from tests.start_methods import SOAK

SIZE, PER_SHARD, BATCH = 400, 20, 16
BAD = {3, 4, 5, 123, 399}


def write(out, samples=SIZE, first=0, bad=(), **options):
    """Write samples of which some are no JSON any more; all are equally long."""
    with MDSWriter(
        out=out,
        columns={"n": "int", "thing": "json"},
        max_samples_per_shard=PER_SHARD,
        **options,
    ) as writer:
        for n in range(first, first + samples):
            writer.write({"n": n, "thing": f"thing-{n:05}"})
    for n in bad:
        path = out / f"shard.{(n - first) // PER_SHARD:05}.mds"
        stored = json.dumps(f"thing-{n:05}").encode()
        data = path.read_bytes()
        assert data.count(stored) == 1
        path.write_bytes(data.replace(stored, b"\xff" * len(stored)))
    return out


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sets") / "damaged", bad=BAD)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sets") / "intact")


@pytest.fixture
def always(monkeypatch):
    """Have threads read even what takes no time."""
    monkeypatch.setattr("streamplug.transfer.decode_pool.SLOW_BLOCKS", 0)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(retry, "backoff_seconds", lambda _: 0.0)


def make(place, noted=None, **options):
    place = {} if place is None else {"local": str(place)}
    options = {"batch_size": BATCH, "shuffle": True, "on_error": "substitute"} | options
    return StreamingDataset(**place, **options, callbacks=[noted or Noted(SampleSubstituted)])


def read(dataset, how="samples"):
    """Return the ids of each batch."""
    if how == "samples":
        ids = [sample["n"] for sample in dataset]
        size = dataset.batch_size
        return [ids[at : at + size] for at in range(0, len(ids), size)]
    return [list(map(int, b["n"])) for b in dataset.batches(num_threads=int(how == "threads") * 2)]


def plan(place, **options):
    return read(make(place, **options, on_error="raise"))


def replaced(planned, events):
    """Return the batches of a plan with the substitutions of events."""
    by = {(e.step, e.sample): e.substitute for e in events}
    return [[by.get((step, n), n) for n in ids] for step, ids in enumerate(planned)]


HOW = ["samples", "batches", "threads"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.usefixtures("always")
def test_damaged_samples_are_substituted_by_others_of_their_step(damaged, intact, how, caplog):
    noted, planned = Noted(SampleSubstituted), plan(intact)
    dataset = make(damaged, noted)
    with caplog.at_level(logging.WARNING, "streamplug.read"):
        found = read(dataset, how)
    assert found == replaced(planned, noted.events)
    assert {event.sample for event in noted.events} == BAD
    for event in noted.events:
        assert event.substitute in set(planned[event.step]) - BAD
        assert (event.stream, event.shard, event.index) == (0, *divmod(event.sample, PER_SHARD))
        assert event.file == f"shard.{event.shard:05}.mds"
        assert event.cause.startswith(f"DecodeError: shard {event.shard} ")
    assert dataset.stats().substitutions == len(noted.events) == len(BAD)
    assert dataset.stats().samples == SIZE
    assert sorted(record.args[0].split()[1] for record in caplog.records) == sorted(map(str, BAD))


@pytest.mark.parametrize("how", HOW)
def test_without_it_they_are_raised_and_nothing_is_counted(damaged, how):
    dataset = make(damaged, on_error="raise")
    with pytest.raises(DecodeError, match="not JSON"):
        read(dataset, how)
    assert dataset.stats().substitutions == 0


def test_random_access_always_raises(damaged):
    dataset = make(damaged)
    with pytest.raises(DecodeError):
        dataset[3]
    read(dataset)
    with pytest.raises(DecodeError):
        dataset[[1, 2, 3]]
    assert dataset[2]["n"] == 2


@pytest.mark.parametrize("how", ["samples", "batches"])
def test_samples_that_were_handed_out_are_counted_exactly(damaged, how):
    dataset = make(damaged)
    count = 0
    for sample in dataset if how == "samples" else dataset.batches():
        count += 1 if how == "samples" else len(sample["n"])
        assert dataset.stats().samples == count or how == "samples"
        assert dataset.state_dict()["sample_in_epoch"] == count - count % BATCH


# -- worlds and states ---------------------------------------------------------------------

FAILING = set()


failing_ints = partial(FailingInts, failing=FAILING)


@pytest.fixture(autouse=True)
def _none_fails():
    FAILING.clear()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two streams of ints."""
    root, first = tmp_path_factory.mktemp("sets"), 0
    for name, size in (("a", 250), ("b", 150)):
        with MDSWriter(out=root / name, columns={"n": "int"}, max_samples_per_shard=20) as out:
            out.write_batch({"n": np.arange(first, first + size)})
        first += size
    return root


def streams(two, **options):
    return {
        "streams": [Stream(local=str(two / name)) for name in "ab"],
        "decoders": {"n": failing_ints},
        **options,
    }


def step_contents(two, ranks, first=0, **options):
    """Return what all ranks read in each step, and the substitutions of each step."""
    steps, events = {}, set()
    for rank in range(ranks):
        noted = Noted(SampleSubstituted)
        world = World(
            nodes=2 if ranks % 2 == 0 else 1, ranks_per_node=max(ranks // 2, 1), rank=rank
        )
        own = {"batch_size": 64 // ranks, **options}
        dataset = make(None, noted, **streams(two), **own, world=world)
        if first:
            planned = make(None, **streams(two), **options, batch_size=64)
            dataset.load_state_dict(planned.state_dict(64 * first))
        for step, ids in enumerate(read(dataset, "batches"), first):
            steps.setdefault(step, []).extend(ids)
        events |= {(e.step, e.sample, e.substitute) for e in noted.events}
        assert len({len(v) for v in steps.values()}) <= 2  # all ranks are in step
    return {step: sorted(ids) for step, ids in steps.items()}, events


METHODS = [
    {"batching_method": m} for m in ("random", "stratified", "per_stream", "device_per_stream")
]
METHODS += [{"curriculum": {0: [0.9, 0.1], 3: [0.5, 0.5]}, "epoch_size": 400}]


@needs_mixing
@given(
    st.sets(st.integers(0, 399), max_size=60),
    st.sampled_from([2, 4, 8, 16, 64]),
    st.sampled_from(METHODS),
    st.integers(1, 5),
    st.integers(0, 99),
)
@example({118, 185}, 1, METHODS[3], 1, 82)  # 185 is found as a substitute for 118 in its own batch
@settings(max_examples=50 if SOAK else 5, deadline=None)
def test_substitutes_are_equal_on_all_worlds_and_after_resuming(
    two, bad, ranks, method, first, seed
):
    FAILING.clear()
    FAILING.update(bad)
    options = {**method, "shuffle_seed": seed, "num_canonical_nodes": 2}
    if method.get("batching_method") == "device_per_stream":
        ranks = 1  # the batch size of the beginning decides about the batches
    expected, events = step_contents(two, 1, **options)
    assert step_contents(two, ranks, **options) == (expected, events)
    later, later_events = step_contents(two, ranks, first, **options)
    assert later == {step: ids for step, ids in expected.items() if step >= first}
    assert later_events == {event for event in events if event[0] >= first}
    assert not bad & {n for ids in expected.values() for n in ids}


@needs_mixing
def test_substitutes_are_of_the_same_stream_if_they_can_be(two):
    FAILING.update({1, 2, 3, 251, 252, 253, *range(100, 120)})
    for method in METHODS[:3]:
        _, events = step_contents(two, 4, **method)
        assert events
        assert all((sample < 250) == (substitute < 250) for _, sample, substitute in events)


def test_a_damaged_shard_is_not_replaced_by_one_sample(two):
    FAILING.update(range(100, 120))
    _, events = step_contents(two, 1)
    assert len({substitute for *_, substitute in events}) == len(events) == 20


def test_the_campaign(tmp_path):
    """Of 32,000 samples some are damaged: order and substitutes are those of one rank everywhere."""
    size, total = 32_000, 1600
    with MDSWriter(out=tmp_path / "big", columns={"n": "int"}) as out:
        out.write_batch({"n": np.arange(size)})
    draws = np.random.default_rng(7)
    FAILING.update(draws.choice(size, 20, replace=False).tolist())

    def run(ranks, first=0):
        columns, events = [], []
        for rank in range(ranks):
            noted = Noted(SampleSubstituted)
            dataset = make(
                tmp_path / "big",
                noted,
                decoders={"n": failing_ints},
                batch_size=total // ranks,
                num_canonical_nodes=2,
                world=World(ranks_per_node=ranks, rank=rank),
            )
            if first:
                dataset.load_state_dict(dataset.state_dict(total * first))
            columns.append([batch["n"] for batch in dataset.batches()])
            events += [(e.step, e.sample, e.substitute) for e in noted.events]
            assert dataset.stats().substitutions == len(noted.events)
        steps = [np.stack(parts, 1).ravel().tolist() for parts in zip(*columns)]
        return steps, sorted(events)

    steps, events = run(1)
    assert {sample for _, sample, _ in events} == FAILING
    assert run(8) == (steps, events)
    assert run(2, first=8) == (steps[8:], [event for event in events if event[0] >= 8])


def test_replicas_get_the_same_substitutes(two):
    FAILING.update(range(0, 400, 37))
    found = []
    for rank in range(4):
        world = World(ranks_per_node=4, rank=rank)
        options = {"batch_size": 16, "num_canonical_nodes": 1}
        dataset = make(None, **streams(two), **options, replication=2, world=world)
        found.append(read(dataset))
    assert found[0] == found[1] != found[2] == found[3]
    expected, _ = step_contents(two, 2, **options)
    assert [sorted(a + b) for a, b in zip(found[0], found[2])] == list(expected.values())


# -- what cannot be fetched ----------------------------------------------------------------


def far(server, tmp_path, access, **options):
    local = {} if access == "range" else {"local": str(tmp_path / f"near-{access}")}
    once = {"download_retry": 1, "download_patience": 0}
    return {"remote": server.url, "access": access, **once, **local, **options}


@pytest.fixture
def copied(tmp_path):
    with serving(write(tmp_path / "far")) as server:
        yield server


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("access", ["shard", "range", "auto"])
@pytest.mark.usefixtures("always", "at_once")
def test_a_missing_shard_is_substituted_and_asked_for_once(copied, intact, tmp_path, access, how):
    (copied.root / "shard.00007.mds").unlink()
    noted, planned = Noted(SampleSubstituted), plan(intact)
    dataset = make(None, noted, **far(copied, tmp_path, access))
    found = read(dataset, how)
    assert found == replaced(planned, noted.events)
    assert {e.sample for e in noted.events} == set(range(140, 160))
    assert {e.cause.partition(":")[0] for e in noted.events} == {"NotFound"}
    asked = [path for _, path, _ in copied.requests if "00007" in path]
    assert len(asked) <= 3  # of blocks that are fetched at the same time
    with pytest.raises(NotFound):
        dataset[150]


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.usefixtures("at_once")
def test_of_a_truncated_shard_what_can_be_read_is(copied, intact, tmp_path, access):
    path = copied.root / "shard.00007.mds"
    path.write_bytes(path.read_bytes()[:-100])
    noted, planned = Noted(SampleSubstituted), plan(intact)
    dataset = make(None, noted, **far(copied, tmp_path, access))
    assert read(dataset) == replaced(planned, noted.events)
    lost = {e.sample for e in noted.events}
    assert (
        lost == set(range(140, 160)) if access == "shard" else {159} <= lost < set(range(150, 160))
    )


@pytest.mark.usefixtures("at_once")
def test_a_later_epoch_tries_again(copied, intact, tmp_path):
    path = copied.root / "shard.00007.mds"
    data = path.read_bytes()
    path.unlink()
    noted = Noted(SampleSubstituted)
    dataset, whole = make(None, noted, **far(copied, tmp_path, "shard")), make(intact)
    assert read(dataset) == replaced(read(whole), noted.events)
    path.write_bytes(data)
    noted.events.clear()
    assert read(dataset) == read(whole)
    assert noted.events == []


@pytest.mark.parametrize("how", HOW)
@pytest.mark.usefixtures("at_once")
def test_a_small_cache(copied, intact, tmp_path, how):
    (copied.root / "shard.00007.mds").unlink()
    noted, planned = Noted(SampleSubstituted), plan(intact)
    small = {"cache_limit": 8000, "shuffle_block_size": 1 << 18}
    dataset = make(None, noted, **far(copied, tmp_path, "shard"), **small)
    assert read(dataset, how) == replaced(planned, noted.events)
    assert len(noted.events) == 20
    assert dataset.stats().evictions > 0


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.usefixtures("at_once")
def test_if_nothing_can_be_read_the_first_error_is_raised_soon(copied, tmp_path, access):
    dataset = make(None, **far(copied, tmp_path, access, predownload=0))
    for path in copied.root.glob("*.mds"):
        path.unlink()
    with pytest.raises(NotFound):
        read(dataset)
    assert dataset.stats().substitutions == 0


def fail(path, byte_range, data):
    raise ConnectionError("as if the network failed")


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.usefixtures("at_once")
def test_a_shard_out_of_reach_is_not_tried_again_for_each_sample(copied, tmp_path, access):
    copied.lie = lambda path, part, data: fail(0, 0, 0) if "00007" in path else data
    noted = Noted(SampleSubstituted)
    dataset = make(None, noted, **far(copied, tmp_path, access), predownload=0)
    read(dataset)
    assert {e.sample for e in noted.events} == set(range(140, 160))
    assert len([path for _, path, _ in copied.requests if "00007" in path]) <= 4


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.usefixtures("at_once")
def test_a_storage_that_is_down_is_not_asked_for_every_shard(copied, tmp_path, access):
    world = {"world": World(ranks_per_node=8), "batch_size": 2, "shuffle_algo": "global"}
    dataset = make(None, **far(copied, tmp_path, access), **world)
    copied.lie = fail
    copied.requests.clear()
    with pytest.raises(StorageError, match="gave up after 2 attempts"):
        next(iter(dataset))
    shards = {use.shard for use in dataset.explain(0, epoch=0)}
    assert len({path for _, path, _ in copied.requests}) <= 2 + 3 < len(shards)


@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.usefixtures("at_once")
def test_shards_are_denied_all_at_once_or_may_be_missing(copied, tmp_path, access, status):
    world = {"world": World(ranks_per_node=8), "batch_size": 2, "shuffle_algo": "global"}
    dataset = make(None, **far(copied, tmp_path, access), **world)
    copied.refuses = lambda _method, _target: status  # 403 is an answer for missing objects, too
    copied.requests.clear()
    with pytest.raises(AccessDenied):
        next(iter(dataset))
    asked = {path for _, path, _ in copied.requests}
    shards = {use.shard for use in dataset.explain(0, epoch=0)}
    assert len(shards) > 2 + 3
    assert (len(asked) <= 2 + 3) == (status == 401)


# -- decoders and subclasses ---------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
def test_decoders_may_fail_in_any_way(intact, how):
    FAILING.update(BAD)
    noted = Noted(SampleSubstituted)
    dataset = make(intact, noted, decoders={"n": failing_ints})
    planned = plan(intact)
    assert read(dataset, how) == replaced(planned, noted.events)
    assert {event.sample for event in noted.events} == BAD
    assert (
        "RuntimeError: 3 is not to be read" in next(e for e in noted.events if e.sample == 3).cause
    )


class Picky(StreamingDataset):
    def __getitem__(self, at):
        sample = super().__getitem__(at)
        if sample["n"] in BAD:
            raise KeyError(sample["n"])
        return sample | {"n": sample["n"]}


def test_an_overridden_getitem_may_fail_in_any_way(intact):
    noted = Noted(SampleSubstituted)
    options = {"batch_size": BATCH, "shuffle": True}
    dataset = Picky(local=str(intact), **options, on_error="substitute", callbacks=[noted])
    assert read(dataset) == replaced(plan(intact), noted.events)
    assert {event.cause for event in noted.events} == {f"KeyError: {n}" for n in BAD}


@pytest.mark.parametrize("error", [ConfigError, MemoryError, KeyboardInterrupt])
def test_other_errors_are_raised(intact, error):
    class Odd(StreamingDataset):
        def __getitem__(self, at):
            raise error("not of the data")

    with pytest.raises(error, match="not of the data"):
        next(iter(Odd(local=str(intact), batch_size=4, on_error="substitute")))


class Unready(Json):
    def __init__(self, error):
        self.error = error

    def decode(self, data):
        raise self.error("not of the data")


@pytest.mark.parametrize("how", [*HOW, "row"])
@pytest.mark.parametrize("error", [ConfigError, MemoryError])
def test_errors_of_decoders_that_are_not_of_the_data_are_raised(intact, tmp_path, error, how):
    dataset = StreamingDataset(
        remote=str(intact),
        local=str(tmp_path / "cache"),
        batch_size=4,
        decoders={"thing": lambda _: Unready(error)},
        on_error="substitute",
    )
    with pytest.raises(error, match="not of the data"):
        dataset[0] if how == "row" else read(dataset, how)
    assert (dataset.stats().repairs, dataset.stats().substitutions) == (0, 0)


class Spacious(Json):
    def decode_batch(self, buffer, starts, sizes):
        raise MemoryError("no memory for a batch")


def test_a_lack_of_memory_for_a_batch_is_no_cause_of_itself(intact):
    decoders = {"thing": lambda _: Spacious()}
    with pytest.raises(MemoryError, match="no memory for a batch") as caught:
        next(StreamingDataset(local=str(intact), batch_size=4, decoders=decoders).batches())
    error, seen = caught.value, []
    while error is not None:  # as tools do that print errors
        assert error not in seen
        seen.append(error)
        error = error.__cause__ or error.__context__


def test_if_every_sample_fails_the_first_error_is_raised(intact):
    FAILING.update(range(SIZE))
    for how in HOW:
        with pytest.raises(DecodeError, match="is not to be read"):
            read(make(intact, decoders={"n": failing_ints}), how)


def test_a_batch_that_fails_though_its_samples_do_not_is_raised(tmp_path):
    for name in "ab":
        with MDSWriter(out=tmp_path / name, columns={name: "int"}) as out:
            out.write_batch({name: np.arange(20)})
    both = [Stream(local=str(tmp_path / name)) for name in "ab"]
    dataset = StreamingDataset(streams=both, batch_size=40, on_error="substitute")
    with pytest.raises(DataError, match="has the columns"):
        next(dataset.batches())


def test_a_batch_of_one_sample_has_no_substitute(damaged):
    with pytest.raises(DecodeError):
        read(make(damaged, batch_size=1))
    with pytest.raises(ConfigError, match="give batch_size="):
        next(iter(make(damaged, batch_size=None)))
    assert len(read(make(damaged, batch_size=1, world=World(ranks_per_node=8)))) == SIZE // 8


def test_two_samples_of_one_step_that_are_padding(tmp_path):
    write(tmp_path / "few", 10, bad=[3])
    noted = Noted(SampleSubstituted)
    found = read(make(tmp_path / "few", noted, shuffle=False, batch_size=16))
    assert len(found[0]) == 16
    assert [(e.sample, e.substitute) for e in noted.events] == [(3, 8)]
    assert found[0][3] == found[0][13] == 8


# -- limits --------------------------------------------------------------------------------


def test_errors_are_counted_by_loop_where_two_loops_take_turns(damaged):
    dataset = make(damaged, Noted(SampleSubstituted), max_errors=4)
    with pytest.raises(TooManyBadSamplesError, match=r"5 samples of epoch [01] could not be read"):
        for _ in zip(dataset.batches(), dataset.batches()):
            pass


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("most", "fails"), [(4, True), (5, False), (0.0125, False), (0.012, True)])
def test_more_errors_than_the_limit_are_raised(damaged, how, most, fails):
    noted = Noted(SampleSubstituted)
    dataset = make(damaged, noted, max_errors=most)
    if not fails:
        for _ in range(2):  # each epoch counts anew
            read(dataset, how)
        return
    with pytest.raises(TooManyBadSamplesError, match=f"more than max_errors={most}") as caught:
        read(dataset, how)
    assert "5 samples of epoch 0" in str(caught.value)
    assert str(caught.value).count("not JSON") == 5
    assert dataset.stats().substitutions == len(noted.events) == 5


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "ignore"}, "on_error='ignore': choose one of raise, substitute"),
        ({"on_error": None}, "on_error=None: choose one of"),
        ({"on_error": "raise", "max_errors": 3}, "max_errors=3 without on_error='substitute'"),
        ({"max_errors": -1}, "max_errors=-1: must be"),
        ({"max_errors": 1.0}, r"max_errors=1.0: must be .* a share"),
        ({"max_errors": 0.0}, r"max_errors=0.0: must be"),
        ({"max_errors": True}, "max_errors=True"),
        ({"max_errors": "3"}, "max_errors='3'"),
    ],
)
def test_options_without_a_meaning_are_refused(damaged, options, text):
    with pytest.raises(ConfigError, match=text):
        make(damaged, **options)


def test_options_may_be_in_a_file(damaged, tmp_path):
    path = tmp_path / "config.toml"
    text = f'[dataset]\nlocal = "{damaged}"\nbatch_size = 16\non_error = "substitute"\n'
    for most, fails in (("5", False), ("0.005", True)):
        path.write_text(f"{text}max_errors = {most}\n")
        dataset = StreamingDataset.from_config(path)
        if fails:
            with pytest.raises(TooManyBadSamplesError):
                list(dataset)
        else:
            assert len(list(dataset)) == SIZE


def test_a_loop_that_is_left_and_resumed(damaged):
    dataset = make(damaged)
    expected = read(make(damaged), "batches")
    for count in (1, 7, 24):
        list(islice(dataset.batches(), count))
        again = make(damaged)
        again.load_state_dict(dataset.state_dict())
        assert read(again, "batches") == expected[count:]
        dataset = make(damaged)
