"""Batches that threads read ahead of use."""

from __future__ import annotations

import gc
from itertools import chain, islice

import numpy as np
import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DataError
from streamplug.transfer.decode_pool import DecodePool
from tests.loop_threads import loop_threads

SIZE, BATCH = 200, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    columns = {"id": "int", "wide": "ndarray:int32:64", "text": "str"}
    with MDSWriter(columns=columns, out=root / "one", size_limit=4000) as out:
        for number in range(SIZE):
            out.write({"id": number, "wide": np.full(64, number, np.int32), "text": f"n {number}"})
    return root


@pytest.fixture
def always(monkeypatch):
    """Have threads read even what takes no time."""
    monkeypatch.setattr("streamplug.transfer.decode_pool.SLOW_BLOCKS", 0)


def make(root, **kwargs):
    place = {} if "remote" in kwargs else {"local": str(root / "one")}
    return StreamingDataset(**{**place, "shuffle": True, "batch_size": BATCH, **kwargs})


def ids(batches):
    found = []
    for batch in batches:
        found.append(batch["id"].tolist())
        assert (batch["wide"] == batch["id"][:, None]).all()
        assert batch["text"] == [f"n {number}" for number in found[-1]]
    return found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", ["local", "cache", "small cache", "ranges"])
@pytest.mark.usefixtures("always")
def test_batches_come_in_order_from_wherever(root, tmp_path, threads, how):
    expected = ids(make(root).batches())
    with serving(root) as server:
        far = {"remote": f"{server.url}/one", "local": str(tmp_path)}
        kwargs = {
            "local": {},
            "cache": far,
            "small cache": {**far, "cache_limit": 20_000, "shuffle_block_size": 1 << 18},
            "ranges": {"remote": far["remote"], "access": "range"},
        }[how]
        dataset = make(root, **kwargs)
        assert ids(dataset.batches(num_threads=threads)) == expected
        second = ids(dataset.batches(num_threads=threads))
        assert second != expected
        assert sorted(chain(*second)) == list(range(SIZE))
    assert not loop_threads()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("taken", [1, 2, 11])
@pytest.mark.usefixtures("always")
def test_the_state_counts_what_was_handed_out(root, threads, taken):
    whole = ids(make(root).batches())
    dataset = make(root)
    batches = dataset.batches(num_threads=threads)
    assert ids(islice(batches, taken)) == whole[:taken]
    state = dataset.state_dict()
    batches.close()
    assert not loop_threads()
    assert state["sample_in_epoch"] == taken * BATCH
    again = make(root)
    again.load_state_dict(state)
    assert ids(again.batches(num_threads=threads)) == whole[taken:]


@pytest.mark.usefixtures("always")
def test_a_loop_that_is_left_ends_its_threads(root):
    for batch in make(root).batches(num_threads=2):
        assert len(batch["id"]) == BATCH
        assert loop_threads()
        break
    gc.collect()
    assert not loop_threads()


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.usefixtures("always")
def test_a_damaged_sample_is_raised_with_its_batch(root, tmp_path, threads):
    columns = {"id": "int", "text": "str"}
    with MDSWriter(columns=columns, out=tmp_path, size_limit=1000) as out:
        for number in range(SIZE):
            out.write({"id": number, "text": f"sample {number}"})
    for path in tmp_path.glob("*.mds"):
        path.write_bytes(path.read_bytes().replace(b"sample 150", b"sampl\xff 150"))
    dataset = StreamingDataset(local=str(tmp_path), batch_size=BATCH)
    found = []
    with pytest.raises(DataError, match=r"sample \d+, column 'text'"):
        found.extend(batch["id"].tolist() for batch in dataset.batches(num_threads=threads))
    assert list(chain(*found)) == list(range(150 // BATCH * BATCH))
    assert not loop_threads()


def test_less_than_no_threads_are_refused(root):
    with pytest.raises(ConfigError, match="num_threads=-1"):
        next(make(root).batches(num_threads=-1))


def test_what_takes_no_time_is_read_without_threads(root, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.decode_pool.MIN_BLOCK_SECONDS", 600.0)
    monkeypatch.setattr("streamplug.run.feed._COLUMN_BLOCK_ROWS", BATCH)
    expected, started = ids(make(root).batches()), []
    monkeypatch.setattr(DecodePool, "add", lambda *_: started.append(1))
    assert ids(make(root).batches(num_threads=2)) == expected
    assert not started


def test_threads_take_over_after_two_slow_blocks(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.decode_pool.MIN_BLOCK_SECONDS", 0.0)
    pool = DecodePool(lambda block: [block], 2)
    assert not pool.is_worthwhile
    assert [*pool.decode(0), *pool.decode(1)] == [0, 1]
    assert pool.is_worthwhile
    monkeypatch.setattr("streamplug.transfer.decode_pool.MIN_BLOCK_SECONDS", 600.0)
    assert list(pool.decode(2)) == [2]
    assert not pool.is_worthwhile
    pool.stop()
