from __future__ import annotations

import os
import signal

import numpy as np
import pytest

pytest.importorskip("ray", reason="ray is not installed: tox -c tests -e engines")

from ray.data import DataContext
from streamplug_ray import RayBatches, from_streamplug

from streamplug import Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, NotFound, StreamplugError
from streamplug.write import MDSWriter

# Of sockets and files that ray leaves to the collector.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("cluster")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("reading") / "set"
    columns = {"n": "int", "text": "str", "array": "ndarray:float32:2,3", "thing": "json"}
    with MDSWriter(out=place, columns=columns, size_limit="2kb", compression="gz") as out:
        for n in range(500):
            array = np.full((2, 3), n, np.float32)
            out.write({"n": n, "text": f"text {n}", "array": array, "thing": {"n": [n]}})
    return str(place)


@pytest.fixture
def config(place, tmp_path):
    return {"remote": place, "local": str(tmp_path / "cache"), "shuffle": True, "batch_size": 16}


def plain(batches):
    return [
        {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in b.items()}
        for b in batches
    ]  # fmt: skip


# -- Ray Data -------------------------------------------------------------------


@pytest.fixture
def ordered():
    options = DataContext.get_current().execution_options
    options.preserve_order = True
    yield
    options.preserve_order = False


def test_ray_data_has_all_rows_once(place, tmp_path):
    found = from_streamplug(place, local=str(tmp_path / "cache"), override_num_blocks=7)
    assert sorted(row["n"] for row in found.iter_rows()) == list(range(500))


def test_ray_data_has_them_in_order_if_it_is_told_to(place, tmp_path, ordered):
    found = from_streamplug(place, local=str(tmp_path / "cache"), override_num_blocks=7)
    assert found.count() == 500
    rows = found.take_all()
    assert [row["n"] for row in rows] == list(range(500))
    assert rows[77]["text"] == "text 77"
    assert rows[77]["thing"] == {"n": [77]}
    assert rows[77]["array"].tolist() == [[77.0] * 3] * 2


def test_ray_data_reads_only_some_columns(place, tmp_path):
    found = from_streamplug(place, local=str(tmp_path / "cache"), columns=["n"])
    assert found.schema().names == ["n"]
    assert sum(row["n"] for row in found.iter_rows()) == 500 * 499 // 2
    assert found.map_batches(lambda batch: {"m": batch["n"] * 2}).sum("m") == 500 * 499


@pytest.mark.parametrize("tasks", [1, 2, 10_000])
def test_tasks_begin_and_end_with_shards(place, tasks):
    from streamplug_ray import StreamplugDatasource

    source = StreamplugDatasource(place)
    ranges = [task.metadata.num_rows for task in source.get_read_tasks(tasks)]
    assert sum(ranges) == 500
    shards = StreamingDataset(remote=place).samples_per_shard
    ends = set(np.cumsum(shards).tolist())
    assert set(np.cumsum(ranges).tolist()) <= ends
    assert len(ranges) == min(tasks, len(shards))


def test_tasks_read_the_version_that_was_opened(place, tmp_path):
    from streamplug_ray import StreamplugDatasource

    View = pytest.importorskip("streamplug_views").View
    View.of(place).commit(tmp_path / "view")
    tasks = StreamplugDatasource(str(tmp_path / "view")).get_read_tasks(1)
    View.of(tmp_path / "view").exclude([0, 1]).commit()
    rows = [n for task in tasks for block in task() for n in block.column("n").to_pylist()]
    assert rows == list(range(500))


def test_a_data_set_that_is_not_there_is_told(tmp_path):
    with pytest.raises(NotFound):
        from_streamplug(str(tmp_path / "nothing"))


def test_options_of_epochs_are_refused(place):
    for options in (
        {"shuffle": True},
        {"epoch_size": 10},
        {"batch_size": 8},
        {"num_canonical_nodes": 2},
        {"world": World(2)},
    ):
        with pytest.raises(
            ConfigError, match="Ray Data reads each sample once, in an order of its own"
        ):
            from_streamplug(place, **options)
    with pytest.raises(ConfigError, match="on_error='substitute': Ray Data reads no other samples"):
        from_streamplug(place, on_error="substitute")
    with pytest.raises(ConfigError, match="choose=3: Ray Data reads each sample once"):
        from_streamplug(streams=[Stream(remote=place, choose=3)])


# -- batches ----------------------------------------------------------------------


def test_batches_are_those_of_the_data_set(config, tmp_path):
    ours = RayBatches(config, workers=2)
    theirs = StreamingDataset(**{**config, "local": str(tmp_path / "other")})
    for _ in range(2):
        assert plain(ours) == plain(theirs.batches())
        assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_goes_on_in_the_middle_of_an_epoch(config, workers):
    whole = plain(StreamingDataset(**config).batches())
    first, found = RayBatches(config, workers=2), []
    for batch in first:
        found.append(batch)
        if len(found) == 11:
            break
    saved = first.state_dict()
    again = RayBatches(config, workers=workers, num_cpus=0.5)
    again.load_state_dict(saved)
    assert plain(found) + plain(again) == whole
    here = StreamingDataset(**config)
    here.load_state_dict(saved)
    assert plain(here.batches()) == whole[11:]


def test_a_killed_worker_is_replaced_and_its_batches_are_the_same(config, tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()

    def augmented(columns, rng):
        (seen / str(os.getpid())).touch()
        return {"n": columns["n"] + rng.integers(0, 1000, len(columns["n"]))}

    undisturbed = plain(RayBatches(config, transform=augmented))
    assert plain(RayBatches(config, transform=augmented, workers=1)) == undisturbed
    assert undisturbed[0]["n"] != undisturbed[1]["n"]
    alone = StreamingDataset(**config).batches_with_rng()
    assert undisturbed == plain(augmented(columns, rng) for columns, rng in alone)
    for path in seen.iterdir():
        path.unlink()
    found = []
    for batch in RayBatches(config, transform=augmented):
        found.append(batch)
        if len(found) in (3, 9):
            for path in seen.iterdir():  # all of them
                os.kill(int(path.name), signal.SIGKILL)
                path.unlink()
    assert plain(found) == undisturbed
    assert list(seen.iterdir())


def test_no_more_is_asked_for_than_prefetch_says(config, tmp_path):
    def marking(columns, rng):
        (tmp_path / f"mark-{columns['n'][0]}").touch()
        return columns

    batches = iter(RayBatches(config, transform=marking, workers=2, prefetch=3))
    next(batches)
    assert len(list(tmp_path.glob("mark-*"))) <= 6
    batches.close()


def test_what_a_transform_raises_is_raised_here(config):
    def failing(columns, rng):
        raise ValueError("upside down")

    with pytest.raises(ValueError, match="upside down"):
        next(iter(RayBatches(config, transform=failing)))


def test_a_batch_that_kills_every_worker_is_given_up(config):
    def deadly(columns, rng):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(StreamplugError, match="step 0 of epoch 0: "):
        next(iter(RayBatches(config, transform=deadly, workers=1, max_retries=1)))


def test_bad_arguments_are_refused(config):
    with pytest.raises(ConfigError, match="workers=0"):
        RayBatches(config, workers=0)
    for name in ("workers", "prefetch", "max_retries"):
        for value in (2.5, True, "2", None):
            with pytest.raises(ConfigError, match=f"{name}={value!r}: must be a whole number"):
                RayBatches(config, **{name: value})
    with pytest.raises(ConfigError, match="num_cpus=nan: must be a number of at least 0"):
        RayBatches(config, num_cpus=float("nan"))
    with pytest.raises(ConfigError, match="batch_size=8, but the data set's is 16"):
        RayBatches(config, 8)
