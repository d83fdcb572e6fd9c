"""Samples that cannot be decoded are remembered over epochs, which changes nothing but the cost."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_testing.fakes import Noted
from streamplug_testing.http import serving

from streamplug import MDSWriter, World
from streamplug.builtin.mds import MDS
from streamplug.dataset import StreamingDataset
from streamplug.errors import DataError, DecodeError
from streamplug.interfaces import Encoding, SampleSubstituted
from streamplug.transfer import retry

SIZE, PER_SHARD, GLOBAL_BATCH = 120, 10, 24
FAILING: set[int] = set()
TRIES: Counter[int] = Counter()


class Failing(Encoding):
    """Decodes ints as they are stored, except those of `FAILING`; counts the attempts at these."""

    def __init__(self, stored):
        self.stored, self.size = stored, stored.size

    def encode(self, value):
        return self.stored.encode(value)

    def decode(self, data):
        value = self.stored.decode(data)
        if value in FAILING:
            TRIES[value] += 1
            raise DecodeError(f"{value} cannot be decoded")
        return value

    def decode_batch(self, buffer, starts, sizes):
        values = self.stored.decode_batch(buffer, starts, sizes)
        for value in map(int, values):
            if value in FAILING:
                TRIES[value] += 1
                raise DecodeError(f"{value} cannot be decoded")
        return values


class Forgetful(dict):
    """Remembers nothing."""

    def __setitem__(self, key, value):
        pass


@pytest.fixture(autouse=True)
def _none_fails(monkeypatch):
    FAILING.clear()
    TRIES.clear()
    monkeypatch.setattr(retry, "backoff_seconds", lambda _: 0.0)


def write(out, **options):
    with MDSWriter(out=out, columns={"n": "int"}, max_samples_per_shard=PER_SHARD, **options) as to:
        to.write_batch({"n": np.arange(SIZE)})
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sets") / "set")


def make(noted=None, ranks=1, rank=0, **options):
    return StreamingDataset(
        **options,
        batch_size=GLOBAL_BATCH // ranks,
        num_canonical_nodes=2,
        shuffle=True,
        on_error="substitute",
        decoders={"n": Failing},
        callbacks=[noted or Noted(SampleSubstituted)],
        world=World(ranks_per_node=ranks, rank=rank),
    )


HOW = {
    "samples": lambda dataset: [sample["n"] for sample in dataset],
    "batches": lambda dataset: [batch["n"].tolist() for batch in dataset.batches()],
    "threads": lambda dataset: [b["n"].tolist() for b in dataset.batches(num_threads=2)],
}


def run(folder, how, ranks, remembers, resumed=0):
    """Return what each rank reads in three epochs, its substitutions, and its states."""
    found = []
    for rank in range(ranks):
        noted = Noted(SampleSubstituted)
        dataset = make(noted, ranks, rank, local=str(folder))
        if not remembers:
            dataset.session.bad_samples = Forgetful()
        if resumed:
            dataset.load_state_dict(dataset.state_dict(GLOBAL_BATCH * resumed))
        epochs = []
        for _ in range(3):
            epochs.append(HOW[how](dataset))
            epochs.append(dataset.state_dict())
        events = sorted((e.epoch, e.step, e.sample, e.substitute, e.cause) for e in noted.events)
        found.append((epochs, events, dataset.stats().substitutions))
    return found


@given(
    bad=st.sets(st.integers(0, SIZE - 1), max_size=40),
    how=st.sampled_from(list(HOW)),
    ranks=st.sampled_from([1, 2, 4]),
    resumed=st.integers(0, 4),
)
@settings(max_examples=8, deadline=None)
def test_order_substitutes_and_states_are_those_without_the_memory(
    folder, bad, how, ranks, resumed
):
    FAILING.clear()
    FAILING.update(bad)
    assert run(folder, how, ranks, True, resumed) == run(folder, how, ranks, False, resumed)


@pytest.mark.parametrize("how", list(HOW))
@pytest.mark.parametrize("count", [2, 12])
def test_later_epochs_neither_download_nor_try_them(tmp_path, how, count):
    bad = range(3, SIZE, SIZE // count)  # each in a shard of its own
    with serving(write(tmp_path / "far")) as server:
        dataset = make(remote=server.url, local=str(tmp_path / "near"))
        FAILING.update(bad)
        HOW[how](dataset)
        assert server.requests.pop(0)[1] == "index.json"
        shards = [path for _, path, _ in server.requests if path.endswith(".mds")]
        assert len(shards) == len(set(shards)) == SIZE // PER_SHARD  # none again
        assert set(TRIES) == set(bad)
        TRIES.clear()
        server.requests.clear()
        for _ in range(2):
            HOW[how](dataset)
        assert dataset.stats().substitutions == 3 * len(bad)
        assert (TRIES, server.requests) == ({}, [])
        anew = make(remote=server.url, local=str(tmp_path / "near"))
        HOW[how](anew)  # finds out by itself, without downloads
        assert set(TRIES) == set(bad)
        assert [path for _, path, _ in server.requests if path.endswith(".mds")] == []


def test_a_process_that_is_given_the_data_set_knows_them(folder):
    FAILING.update({5, 50})
    dataset = make(local=str(folder))
    HOW["batches"](dataset)
    TRIES.clear()
    copied = pickle.loads(pickle.dumps(dataset))
    assert set(copied.session.bad_samples) == {5, 50}
    HOW["batches"](copied)
    assert TRIES == {}


def test_random_access_tries_them_all_the_same(folder):
    FAILING.add(5)
    dataset = make(local=str(folder))
    HOW["batches"](dataset)
    with pytest.raises(DecodeError, match="5 cannot be decoded"):
        dataset[5]
    FAILING.clear()
    assert dataset[5]["n"] == 5


def test_an_outage_is_not_remembered(tmp_path):
    with serving(write(tmp_path / "far")) as server:
        options = {"download_retry": 0, "download_patience": 0}
        dataset = make(remote=server.url, local=str(tmp_path / "near"), **options)
        server.refuses = lambda method, target: 503 if "00002" in target else 0
        lost = set(range(20, 30))
        assert not lost & set(HOW["samples"](dataset))
        assert not dataset.session.bad_samples
        server.refuses = lambda method, target: 0
        assert lost <= set(HOW["samples"](dataset))


def test_a_damaged_copy_is_fetched_again_and_not_remembered(tmp_path):
    far = write(tmp_path / "far")
    dataset = make(remote=str(far), local=str(tmp_path / "near"))
    HOW["samples"](dataset)
    path = tmp_path / "near" / "shard.00002.mds"
    data = path.read_bytes()
    at = data.rindex(np.int64(25).tobytes())
    path.write_bytes(data[:at] + np.int64(999).tobytes() + data[at + 8 :])
    FAILING.add(999)
    noted = Noted(SampleSubstituted)
    anew = make(noted, remote=str(far), local=str(tmp_path / "near"))
    assert sorted(HOW["samples"](anew)) == list(range(SIZE))
    assert (noted.events, anew.session.bad_samples) == ([], {})
    assert path.read_bytes() == data


def test_without_digests_nothing_is_remembered(tmp_path):
    far = write(tmp_path / "far", hashes=[])
    dataset = make(remote=str(far), local=str(tmp_path / "near"))
    FAILING.add(25)
    assert 25 not in HOW["samples"](dataset)
    FAILING.clear()
    assert 25 in HOW["samples"](dataset)


def test_a_shard_that_cannot_be_opened_is_not_fetched_again_if_it_is_as_indexed(
    tmp_path, monkeypatch
):
    def refuse(self, info, data, columns):
        raise DataError("no such shard")

    with serving(write(tmp_path / "far")) as server:
        dataset = make(remote=server.url, local=str(tmp_path / "near"))
        monkeypatch.setattr(MDS, "open", refuse)
        with pytest.raises(DataError, match="no such shard"):
            dataset[5]
        assert [path for _, path, _ in server.requests] == ["index.json", "shard.00000.mds"]
