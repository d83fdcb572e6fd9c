from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest
from streamplug_ray.batches import RayBatches, _BatchWorker
from streamplug_ray.remote_batches import BatchRequest, DatasetCopy, remote_batches, take

from streamplug import Stream, register_encoding
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DataError, DecodeError, StateError
from streamplug.interfaces import Encoding
from streamplug.types import World
from streamplug.write import MDSWriter

BATCH = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("apart") / "set"
    columns = {"n": "int32", "text": "str", "thing": "json"}
    with MDSWriter(out=place, columns=columns, size_limit=600) as out:
        for n in range(203):
            out.write({"n": n, "text": f"text {n}", "thing": n % 3})
    return str(place)


def opened(place, **options):
    return StreamingDataset(local=place, shuffle=True, batch_size=BATCH, **options)


def plain(batches):
    return [
        {
            name: values.tolist() if isinstance(values, np.ndarray) else values
            for name, values in batch.items()
        }
        for batch in batches
    ]


def elsewhere(dataset, pool, ahead=4, asked=None):
    """Read batches by threads, with a data set of their own."""
    other = StreamingDataset(local=dataset.streams[0].local)

    def ask(step):
        if asked is not None:
            asked.append(step)
        return pool.submit(take, other, step.ids)

    return remote_batches(dataset, ask, Future.result, ahead=ahead)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.mark.parametrize("ahead", [1, 4, 1000])
@pytest.mark.parametrize("rank", [0, 1])
def test_batches_are_those_of_the_data_set(place, pool, ahead, rank):
    world = World(ranks_per_node=2, rank=rank)
    ours, theirs = opened(place, world=world), opened(place, world=world)
    for _ in range(2):
        assert plain(elsewhere(ours, pool, ahead)) == plain(theirs.batches())
        assert ours.state_dict() == theirs.state_dict()
    assert ours.stats().samples == theirs.stats().samples
    assert ours.stats().batches == theirs.stats().batches


def test_the_state_is_that_of_what_was_handed_out(place, pool):
    ours, theirs, asked = opened(place), opened(place), []
    for count, (mine, their) in enumerate(
        zip(elsewhere(ours, pool, 10, asked), theirs.batches()), 1
    ):
        assert plain([mine]) == plain([their])
        assert ours.state_dict() == theirs.state_dict()
        if count == 5:
            break
    assert [step.number for step in asked] == list(range(14))
    assert {step.epoch for step in asked} == {0}
    again = opened(place)
    again.load_state_dict(ours.state_dict())
    theirs.load_state_dict(theirs.state_dict())
    assert plain(elsewhere(again, pool)) == plain(theirs.batches())


def test_no_more_is_asked_for_than_what_may_be_ahead(place, pool):
    asked = []
    for count, _ in enumerate(elsewhere(opened(place), pool, 3, asked), 1):
        assert len(asked) <= count + 2


def test_a_state_that_is_loaded_meanwhile_ends_the_loop(place, pool):
    dataset = opened(place)
    loop = elsewhere(dataset, pool)
    next(loop)
    dataset.load_state_dict(dataset.state_dict())
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
        next(loop)


def test_what_fails_elsewhere_fails_here_and_can_be_repeated(place, pool):
    dataset = opened(place)

    def answer(asked):
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        next(remote_batches(dataset, lambda step: step, answer, ahead=2))
    dataset.load_state_dict(dataset.state_dict())
    assert plain(elsewhere(dataset, pool)) == plain(opened(place).batches())


def test_bad_arguments_are_refused(place):
    dataset = opened(place)
    with pytest.raises(ConfigError, match="ahead=0: must be a whole number of at least 1"):
        next(remote_batches(dataset, len, len, ahead=0))
    with pytest.raises(ConfigError, match="batch_size=3 differs from batch_size=8 of the data set"):
        next(remote_batches(dataset, len, len, ahead=1, batch_size=3))
    with pytest.raises(IndexError):
        take(dataset, [203])
    assert plain([take(dataset, [5, 5, -1])]) == [
        {"n": [5, 5, 202], "text": ["text 5", "text 5", "text 202"], "thing": [2, 2, 1]}
    ]


FAILING = {3, 4, 5, 100, 202}


def substituted(place, pool, take_samples=take):
    """Read batches of which some samples cannot be read; return them and the data set."""
    ours = opened(place, on_error="substitute")
    other = StreamingDataset(local=place)

    def read(step):
        if bad := FAILING & set(step.ids.tolist()):
            raise DataError(f"damaged: {bad}")
        return None if step.is_probe else take_samples(other, step.ids)

    def ask(step):
        return pool.submit(read, step)

    return ours, remote_batches(ours, ask, Future.result, ahead=4)


def test_samples_that_cannot_be_read_are_substituted(place, pool):
    ours, batches = substituted(place, pool)
    found = [batch["n"].tolist() for batch in batches]
    planned = [batch["n"].tolist() for batch in opened(place).batches()]
    assert ours.stats().substitutions == len(FAILING)
    for before, after in zip(planned, found, strict=True):
        assert [n if n in FAILING else m for n, m in zip(before, after)] == before
        assert not FAILING & set(after)
        assert set(after) <= set(before)
    assert ours.state_dict() == opened(place).state_dict() | {"epoch": 1}


@pytest.mark.parametrize("error", [DecodeError, KeyError])
def test_only_what_a_transform_cannot_decode_is_substituted(place, pool, error):
    def transform(batch, rng):
        if FAILING & set(batch["n"].tolist()):
            raise error("damaged")
        return {"n": batch["n"], "drawn": rng.random()}

    config = {"local": place, "shuffle": True, "batch_size": BATCH, "on_error": "substitute"}
    worker = _BatchWorker(RayBatches(config, transform=transform)._worker_arguments())
    ours = StreamingDataset(**config)
    batches = remote_batches(
        ours, lambda step: pool.submit(worker.read, step), Future.result, ahead=4
    )
    if error is KeyError:
        with pytest.raises(KeyError):
            list(batches)
        return
    found = list(batches)
    assert len(found) == len(list(opened(place).batches()))
    assert not FAILING & set(np.concatenate([batch["n"] for batch in found]).tolist())
    assert ours.stats().substitutions == len(FAILING)


def test_errors_of_what_is_done_with_a_batch_are_raised(place, pool):
    def fail(dataset, ids):
        raise DataError("of the transform")

    _, batches = substituted(place, pool, fail)
    with pytest.raises(DataError, match="of the transform"):
        next(batches)


# -- data sets in workers -----------------------------------------------------------


@pytest.fixture
def view(place, tmp_path):
    """The module of views, and a view with a tagged version."""
    views = pytest.importorskip("streamplug_views")
    url = str(tmp_path / "view")
    views.View.of(place).commit(url)
    views.tag(url, "stable")
    return views, url


@pytest.mark.parametrize("version", [None, 1, "stable"])
@pytest.mark.parametrize("as_stream", [False, True])
def test_workers_read_the_version_that_was_opened(view, version, as_stream):
    views, url = view
    config = {"remote": url, "version": version}
    if as_stream:
        config = {"streams": [Stream(**config)]}
    batches = RayBatches({**config, "batch_size": BATCH})
    sent = cloudpickle.dumps(batches._worker_arguments())
    views.View.of(url).exclude([0, 1]).commit()
    views.tag(url, "stable", 2, move=True)
    worker = _BatchWorker(cloudpickle.loads(sent))
    assert worker.read(BatchRequest(0, 0, np.arange(3)))["n"].tolist() == [0, 1, 2]
    assert StreamingDataset(remote=url)[0]["n"] == 2


@pytest.mark.parametrize("as_stream", [False, True])
def test_workers_read_the_columns_of_a_table_that_were_opened(tmp_path, as_stream):
    pytest.importorskip("streamplug_iceberg")
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = f"file://{tmp_path}/warehouse"
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"n": pa.int64()}))
    table.append(pa.table({"n": [0, 1, 2]}))
    snapshot = table.current_snapshot().snapshot_id
    for old, new in [(None, "n"), ("n", "m")]:
        if old is not None:
            with table.update_schema() as update:  # without a new snapshot
                update.rename_column(old, new)
        config = {"remote": table.location(), "format": "iceberg"}
        if as_stream:
            config = {"streams": [Stream(**config)]}
        copy = DatasetCopy.of(StreamingDataset(**config), config)
        given = copy.config["streams"][0].version if as_stream else copy.config.get("version")
        assert given == (snapshot if old is None else None)
        assert take(copy.open(), [2, 0])[new].tolist() == [2, 0]
    with table.update_schema() as update:
        update.rename_column("m", "k")
    with pytest.raises(StateError, match="finds other samples or columns in"):
        copy.open()
    catalog.close()


def test_a_data_set_that_has_changed_is_refused_by_workers(tmp_path):
    def write(count):
        with MDSWriter(out=tmp_path, columns={"n": "int32"}, exist_ok=True) as out:
            for n in range(count):
                out.write({"n": n})

    write(10)
    config = {"remote": str(tmp_path)}
    copy = DatasetCopy.of(StreamingDataset(**config), config)
    assert copy.open().size == 10
    write(11)
    with pytest.raises(
        StateError, match=r"finds other samples or columns in .*index\.json than the process"
    ):
        copy.open()


def test_workers_know_the_names_that_were_registered(tmp_path):
    class Reversed(Encoding):
        def encode(self, value):
            return value[::-1].encode()

        def decode(self, data):
            return bytes(data).decode()[::-1]

    register_encoding("reversed-in-workers", Reversed)
    with MDSWriter(out=tmp_path, columns={"text": "reversed-in-workers"}) as out:
        out.write({"text": "abc"})
    batches = RayBatches({"remote": str(tmp_path), "batch_size": 1})
    read = (
        "import sys, pickle; from streamplug_ray.batches import _BatchWorker; "
        "print(_BatchWorker(pickle.load(sys.stdin.buffer))._dataset[0]['text'])"
    )
    sent = cloudpickle.dumps(batches._worker_arguments())
    result = subprocess.run(
        [sys.executable, "-c", read], input=sent, capture_output=True, check=True
    )
    assert result.stdout.decode().strip() == "abc"
