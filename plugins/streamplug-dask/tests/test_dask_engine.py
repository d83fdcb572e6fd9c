from __future__ import annotations

import time

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: tox -c tests -e engines")

import dask
import distributed
from streamplug_dask.engine import Dask
from streamplug_testing import EngineTests

from streamplug.errors import ConfigError, WriterError
from streamplug.plugin import make

pytestmark = [
    # Of sockets of workers that are killed, and of Python's own multiprocessing in their nannies.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster():
    # Else it gives up workers that are slow to come back, as on a machine that is busy.
    patient = {"distributed.deploy.lost-worker-timeout": "10 minutes"}
    with (
        dask.config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
    ):
        yield cluster


class TestDask(EngineTests):
    cls = Dask
    deaths = 2

    @pytest.fixture(autouse=True)
    def connected(self, cluster):
        self.address = cluster.scheduler_address

    @pytest.fixture(autouse=True)
    def place(self, s3_place):
        self.s3 = s3_place

    def afar(self):
        return self.s3

    def make(self):
        return make("engine", f"dask:{self.address}")


def test_the_client_that_is_there_is_used(cluster, tmp_path):
    with distributed.Client(cluster.scheduler_address):
        assert sorted(make("engine", "dask").run(lambda number: number, [1, 2])) == [1, 2]


def test_a_client_can_be_given(cluster):
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        assert list(Dask(client=client).run(lambda number: number, [3])) == [3]
        assert client.status == "running"
        with pytest.raises(ConfigError, match="not both"):
            Dask("tcp://127.0.0.1:1", client=client)


def test_a_cluster_that_is_not_there_is_told():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(ConfigError, match=r"engine dask:tcp://127\.0\.0\.1:9: "),
    ):
        list(make("engine", "dask:tcp://127.0.0.1:9").run(lambda number: number, [1]))


def test_a_client_that_is_closed_meanwhile_is_an_error_of_ours(cluster, tmp_path):
    end = tmp_path / "end"

    def wait(number):
        while number and not end.exists():
            time.sleep(0.1)

    client = distributed.Client(cluster.scheduler_address, set_as_default=False)
    finished = Dask(client=client).run(wait, [0, 1])
    assert next(finished) == 0
    client.close()
    try:
        with pytest.raises(WriterError, match="part 1: "):
            next(finished)
    finally:
        end.touch()
