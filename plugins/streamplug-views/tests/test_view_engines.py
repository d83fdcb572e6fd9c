"""Expressions are evaluated on clusters, whose workers store results in a place that all of them see."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sys
import tempfile
import zlib

import numpy as np
import pytest
from streamplug_tools.tasks import pack_task
from streamplug_views import View

from streamplug import (
    Compression,
    Engine,
    MDSWriter,
    StreamingDataset,
    register_compression,
    register_engine,
)
from streamplug.cache.user_cache import user_cache_dir
from streamplug.errors import ConfigError, WriterError
from streamplug.plugin import registry
from streamplug.plugin.location import open_storage
from streamplug.transfer.tempdir import temp_root

# Of sockets and files that clusters leave to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def own_registrations():
    """Forget what a test registers: others, such as those of tests/fuzz, use every name that there is."""
    before = registry.registrations()
    yield
    for kind, names in registry.registrations().items():
        for name in names.keys() - before[kind].keys():
            registry.unregister(kind, name)


@pytest.fixture
def base(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        for n in range(150_000):
            out.write({"n": n})
    return tmp_path / "set"


@pytest.fixture
def dask_engine():
    distributed = pytest.importorskip("distributed", reason="tox -c tests -e engines")
    pytest.importorskip("streamplug_dask")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    )
    with cluster:
        yield f"dask:{cluster.scheduler_address}"


@pytest.fixture
def ray_engine():
    ray = pytest.importorskip("ray", reason="tox -c tests -e engines")
    pytest.importorskip("streamplug_ray")
    ray.shutdown()  # that of other tests
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=200 << 20,
        log_to_driver=False,
    )
    yield "ray"
    ray.shutdown()


@pytest.fixture
def spark_engine():
    sql = pytest.importorskip("pyspark.sql", reason="tox -c tests -e engines")
    pytest.importorskip("streamplug_spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    session = builder.getOrCreate()
    yield "spark"
    session.stop()


@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_clusters_evaluate_expressions(base, tmp_path, request, engine):
    spec = request.getfixturevalue(f"{engine}_engine")
    (tmp_path / "workspace").mkdir()
    view = View.of(base, engine=spec, workspace=str(tmp_path / "workspace"))
    chained = view.where("n % 1000 == 7").where("n > 5000")
    assert chained.commit(tmp_path / "view").samples == 145
    rows = [int(row["n"]) for row in StreamingDataset(remote=str(tmp_path / "view"))]
    assert rows == list(range(5007, 150_000, 1000))
    assert not list((tmp_path / "workspace").iterdir())


class OtherMachine(Engine):
    """Runs tasks as another machine does: with its own directories for temporary and cached files."""

    folder = None

    @classmethod
    def from_spec(cls, argument):
        return cls()

    def run(self, task, numbers):
        data = pack_task(task)
        machine, before = self.folder, tempfile.tempdir
        machine.mkdir()
        home, cache = temp_root(), user_cache_dir()
        hidden = [(place, machine / f"hidden-{n}") for n, place in enumerate((home, cache))]
        tempfile.tempdir = str(machine)
        for place, moved in hidden:
            place.rename(moved)
        try:
            call = pickle.loads(data)
            for number in numbers:
                call(number)
            del call
            gc.collect()
            assert not list(temp_root().glob("*/*.rows"))
        finally:
            tempfile.tempdir = before
            for place, moved in hidden:
                shutil.rmtree(place, ignore_errors=True)
                moved.rename(place)
            shutil.rmtree(machine)
        yield from numbers


@pytest.mark.parametrize("workspace", ["directory", "url"])
def test_machines_need_no_common_directory_for_rows(tmp_path, monkeypatch, workspace):
    # Its own, as that of the system has files of tests that run at the same time.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(OtherMachine, "folder", tmp_path / "machine")
    register_engine("other", OtherMachine)
    store = f"memory://{tmp_path.name}-{workspace}"
    place = f"{store}/workspace" if workspace == "url" else str(tmp_path / "workspace")
    numbers = np.arange(110_000)
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write_batch({"n": numbers})
    with MDSWriter(out=tmp_path / "squares", columns={"n": "int", "square": "int"}) as out:
        out.write_batch({"n": numbers[::-1], "square": numbers[::-1] ** 2})
    View.of(tmp_path / "set").select(numbers >= 1000).commit(f"{store}/view")
    # The rows of the committed view are in the cache directory, the others in the temporary one.
    view = View.of(f"{store}/view", engine="other", workspace=place).where("n < 105_000")
    chosen = view.add(str(tmp_path / "squares"), on="n").where("square == n * n and n % 3 == 0")
    assert len(chosen) == sum(n % 3 == 0 for n in range(1000, 105_000))
    assert not list(open_storage(place).list(""))


def test_a_cluster_needs_a_workspace(base):
    with pytest.raises(ConfigError, match="needs workspace=, a directory or a URL"):
        len(View.of(base, engine="dask").where("n > 5"))


def test_processes_know_the_plugins_that_their_caller_registered(tmp_path):
    class Deflate(Compression):
        suffix = "deflate"

        def compress(self, data):
            return zlib.compress(bytes(data))

        def decompress(self, data, *, max_size):
            return zlib.decompress(bytes(data))

    register_compression("deflate", Deflate)
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}, compression="deflate") as out:
        out.write_batch({"n": np.arange(100_000)})
    view = View.of(tmp_path / "set", engine="local:1").where("n % 1000 == 7")
    assert len(view) == 100


class Late(Engine):
    """An engine with a worker that it considers lost, and that ends during the next evaluation."""

    earlier = None

    @classmethod
    def from_spec(cls, argument):
        return cls()

    def run(self, task, numbers):
        for number in numbers:
            task(number)
        if Late.earlier is not None:
            Late.earlier(1)
        Late.earlier = task
        yield from numbers


def test_late_attempts_of_an_expression_do_not_change_the_next(base, tmp_path, monkeypatch):
    monkeypatch.setattr(Late, "earlier", None)
    register_engine("late", Late)
    view = View.of(base, engine="late", workspace=str(tmp_path / "workspace"))
    chained = view.where("n % 1000 < 900").where("n % 3 == 0")
    assert len(chained) == sum(n % 1000 < 900 and n % 3 == 0 for n in range(150_000))


class Failing(Engine):
    @classmethod
    def from_spec(cls, argument):
        return cls()

    def run(self, task, numbers):
        task(numbers[0])
        yield numbers[0]
        raise WriterError("part 1: lost")


def test_a_failed_evaluation_leaves_nothing_in_the_workspace(base, tmp_path):
    register_engine("failing", Failing)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with pytest.raises(WriterError, match="lost"):
        len(View.of(base, engine="failing", workspace=str(workspace)).where("n > 5"))
    assert not list(workspace.iterdir())
