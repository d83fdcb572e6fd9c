"""Transforms in threads make what they make in one process and in workers, and the threads end."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import ConfigError, DecodeError  # noqa: E402
from streamplug.types import World  # noqa: E402
from tests.loop_threads import loop_threads  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SIZE, BATCH = 60, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"n": "int", "a": "ndarray:float32:3"}
    with MDSWriter(columns=columns, out=out, size_limit=600) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "a": np.full(3, n, np.float32)})
    return str(out)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Threads are used however short the work."""
    for module in ("transfer.decode_pool", "adapters.torch_batches"):
        monkeypatch.setattr(f"streamplug.{module}.MIN_BLOCK_SECONDS", 0.0)


def new(folder, **options):
    options = {"batch_size": BATCH, "shuffle": True, **options}
    return StreamingDataset(local=folder, **options)


def draw(sample, rng):
    time.sleep(float(rng.random()) / 5000)  # so that threads overtake each other
    return {"n": sample["n"], "a": sample["a"] + rng.integers(1000, size=3), "t": rng.random()}


def draw_batch(batch, rng):
    return {"n": batch["n"], "a": batch["a"] + rng.integers(1000, size=batch["a"].shape)}


def double(sample):
    return {"n": 2 * sample["n"]}


def numbers(samples):
    return {"n": torch.tensor([sample["n"] for sample in samples])}


WAYS = {
    "transform with numbers": {"transform": draw},
    "transform": {"transform": double},
    "batch transform with numbers": {"batch_transform": draw_batch},
    "collation": {"collate_fn": numbers},
    "both": {"transform": double, "collate_fn": numbers},
    "short batches left out": {"transform": draw, "drop_last": True},
}


def plain(batch):
    return {key: torch.as_tensor(value).tolist() for key, value in batch.items()}


def read(loader, count=None):
    """Return the batches of an epoch, each with the state after it; or `count` of them."""
    found, batches = [], iter(loader)
    for batch in batches:
        found.append((plain(batch), loader.state_dict()))
        if len(found) == count:
            break
    batches.close()
    return found


@pytest.mark.parametrize("name", WAYS)
def test_batches_and_states_are_those_of_one_process(folder, name):
    one, several = (StreamingDataLoader(new(folder), num_threads=n, **WAYS[name]) for n in (0, 3))
    for _ in range(2):
        expected = read(one)
        assert len(expected) == SIZE // BATCH
        assert read(several) == expected
    assert loop_threads() == []


def test_batches_are_those_of_workers(folder):
    workers = StreamingDataLoader(new(folder), num_workers=2, transform=draw)
    threads = StreamingDataLoader(new(folder), num_threads=2, transform=draw)
    both = StreamingDataLoader(new(folder), num_workers=1, num_threads=2, transform=draw)
    expected = read(workers)
    assert read(threads) == expected
    assert read(both) == expected


@settings(max_examples=4, deadline=None)
@given(
    threads=st.integers(1, 5),
    cuts=st.lists(st.integers(1, 20), max_size=2),
    options=st.fixed_dictionaries(
        {
            "batch_size": st.sampled_from([4, 7]),
            "shuffle_seed": st.integers(0, 3),
            "partition_algo": st.sampled_from(["elastic", "relaxed"]),
        }
    ),
)
def test_a_loop_that_is_resumed_is_that_of_one_process(folder, threads, cuts, options):
    expected = read(StreamingDataLoader(new(folder, **options), transform=draw))
    found, state = [], None
    for count in [*cuts, None]:
        if len(found) < len(expected):
            loader = StreamingDataLoader(
                new(folder, **options), num_threads=threads, transform=draw
            )
            if state is not None:
                loader.load_state_dict(state)
            found += read(loader, count)
            state = found[-1][1]
    assert found == expected


def test_a_loop_follows_a_resize(folder):
    worlds = [World(ranks_per_node=2, rank=0), World(ranks_per_node=1, rank=0)]
    found = []
    for threads in (0, 3):
        dataset = new(folder, world=worlds[0])
        loader = StreamingDataLoader(dataset, num_threads=threads, transform=draw)
        found.append([])
        for step, batch in enumerate(loader):
            found[-1].append((plain(batch), loader.state_dict()))
            if step == 3:
                loader.resize(worlds[1])
    assert found[0] == found[1]


def test_transforms_run_at_once(folder):
    meeting = threading.Barrier(2)

    def meet(sample):
        if threading.current_thread() is not threading.main_thread() and not meeting.broken:
            meeting.wait(60)
        return sample

    loader = StreamingDataLoader(new(folder, batch_size=6), num_threads=2, transform=meet)
    batches = iter(loader)
    for _ in range(8):
        next(batches)
    meeting.abort()
    batches.close()
    assert loop_threads() == []


class TransformError(Exception):
    """Raised by a transform."""


@pytest.mark.parametrize("kind", ["transform", "batch_transform", "collate_fn"])
def test_an_error_comes_in_the_turn_of_its_batch_and_names_it(folder, kind):
    order = [batch["n"].tolist() for batch in new(folder).batches()]
    bad = order[9][2]

    def refuse(value):
        found = [s["n"] for s in value] if kind == "collate_fn" else np.ravel(value["n"])
        if bad in found:
            raise TransformError("no")
        return value

    caught = []
    for threads in (0, 2):
        loader = StreamingDataLoader(new(folder), num_threads=threads, **{kind: refuse})
        batches = iter(loader)
        for _ in range(9):
            next(batches)
        with pytest.raises(TransformError) as raised:
            next(batches)
        caught.append(getattr(raised.value, "__notes__", None))
    assert caught[0] == caught[1]
    if sys.version_info >= (3, 11):  # errors have notes from then on
        [note] = caught[1]
        assert (f"sample {bad} (" in note and "shard." in note) == (kind == "transform")
    assert loop_threads() == []


def test_a_sample_that_cannot_be_decoded_is_substituted(folder):
    def refuse(sample, rng):
        if sample["n"] == 17:
            raise DecodeError("damaged")
        return {"n": sample["n"], "r": rng.random()}

    options = {"on_error": "substitute", "max_errors": 1}
    found = []
    for threads in (0, 3):
        dataset = new(folder, **options)
        found.append(read(StreamingDataLoader(dataset, num_threads=threads, transform=refuse)))
        assert dataset.stats().substitutions == 1
    assert found[0] == found[1]


def test_a_stop_iteration_does_not_end_the_epoch(folder):
    def stop(sample):
        raise StopIteration

    for threads in (0, 2):
        with pytest.raises(RuntimeError, match="StopIteration"):
            read(StreamingDataLoader(new(folder), num_threads=threads, transform=stop))


def test_threads_end_when_a_loop_is_left(folder):
    """After the sample that each is at, not after its batch."""
    order = [batch["n"].tolist() for batch in new(folder, batch_size=10).batches()]
    later = {number for batch in order[3:] for number in batch}
    calls, begun, go = [], threading.Event(), threading.Event()

    def wait(sample):
        if sample["n"] in later:
            calls.append(sample["n"])
            begun.set()
            go.wait(60)
        return sample

    batches = iter(StreamingDataLoader(new(folder, batch_size=10), num_threads=2, transform=wait))
    assert [next(batches)["n"].tolist() for _ in range(3)] == order[:3]
    assert begun.wait(60)
    threading.Timer(0.1, go.set).start()
    batches.close()
    assert loop_threads() == []
    assert len(calls) <= 2


def test_an_interrupt_ends_threads(folder):
    interrupted = threading.Event()

    def interrupt(sample):
        if threading.current_thread() is not threading.main_thread():
            if not interrupted.is_set():
                interrupted.set()
                _thread.interrupt_main()
            time.sleep(0.01)
        return sample

    with pytest.raises(KeyboardInterrupt):
        read(StreamingDataLoader(new(folder), num_threads=2, transform=interrupt))
    assert loop_threads() == []


def test_random_states_of_a_process_are_refused(folder):
    for options in ({"transform": double}, {"batch_transform": double}):
        with pytest.raises(ConfigError, match="seed_torch=True seeds generators that all threads"):
            StreamingDataLoader(new(folder), num_threads=2, seed_torch=True, **options)


def test_memory_is_bounded_by_the_number_of_threads(folder):
    """However far the loop is behind, no more batches are made than threads and one that waits."""
    made, lock = [], threading.Lock()

    def note(batch):
        with lock:
            made.append(len(made))
        return batch

    batches = iter(StreamingDataLoader(new(folder), num_threads=2, batch_transform=note))
    ahead = []
    for used in range(1, SIZE // BATCH + 1):
        next(batches)
        time.sleep(0.005)
        ahead.append(len(made) - used)
    assert max(ahead) <= 3
    assert all(later - earlier <= 3 for earlier, later in pairwise(ahead))
