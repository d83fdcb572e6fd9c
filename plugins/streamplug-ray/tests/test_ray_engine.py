from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="ray is not installed: tox -c tests -e engines")

import ray
from streamplug_ray.engine import Ray
from streamplug_testing import EngineTests

from streamplug.errors import ConfigError
from streamplug.plugin import make

# Of sockets and files that ray leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


class TestRay(EngineTests):
    name = "ray"
    deaths = 2

    @pytest.fixture(autouse=True)
    def connected(self, cluster):
        pass

    @pytest.fixture(autouse=True)
    def place(self, s3_place):
        self.s3 = s3_place

    def afar(self):
        return self.s3


def test_numbers_that_have_no_meaning_are_refused():
    with pytest.raises(ConfigError, match="max_retries=-1: must be 0 or more"):
        Ray(max_retries=-1)


def test_many_more_numbers_than_processors(cluster):
    assert sorted(Ray(num_cpus=0.5).run(lambda number: number, range(100))) == list(range(100))


def test_the_cluster_of_the_process_stays(cluster):
    here = ray.get_runtime_context().gcs_address
    port = here.rpartition(":")[2]
    for address in ("auto", here, f"localhost:{port}", f"127.0.0.1:{port}"):
        assert list(make("engine", f"ray:{address}").run(lambda number: number, [1])) == [1]
    assert ray.is_initialized()


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "localhost:1", "192.0.2.1:{port}"])
def test_a_connection_to_another_cluster_is_refused(cluster, address):
    address = address.format(port=ray.get_runtime_context().gcs_address.rpartition(":")[2])
    with pytest.raises(ConfigError, match="is connected to a cluster already: leave out"):
        list(make("engine", f"ray:{address}").run(lambda number: number, [1]))


ALONE = """
import sys
from pathlib import Path
from streamplug import write_parts

def samples(part):
    for n in range(10 * part, 10 * part + 10):
        yield {"n": n}

write_parts(samples, range(3), columns={"n": "int"}, out=sys.argv[1], engine="ray")
import ray
assert not ray.is_initialized()
assert (Path(sys.argv[1]) / "index.json").exists()
"""


def test_without_a_cluster_one_of_this_machine_is_used_for_as_long_as_it_is_needed(tmp_path):
    command = [sys.executable, "-c", ALONE, str(tmp_path / "set")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_cluster_that_is_not_there_is_told(monkeypatch):
    def init(address, **options):
        raise ConnectionError(f"nobody answers at {address}")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)  # whose own patience takes minutes
    with pytest.raises(ConfigError, match="finds no cluster at 'auto': nobody answers at auto"):
        list(make("engine", "ray:auto").run(lambda number: number, [1]))
