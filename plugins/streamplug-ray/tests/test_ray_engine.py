from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="ray is not installed: tox -e engines")

import ray
from streamplug_ray.engine import Ray

from streamplug.errors import ConfigError
from streamplug.plugin import make
from streamplug.testing import EngineTests

# Of sockets and files that ray leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


class TestRay(EngineTests):
    name = "ray"
    deaths = 2

    @pytest.fixture(autouse=True)
    def connected(self, cluster):
        pass


def test_numbers_that_have_no_meaning_are_refused():
    with pytest.raises(ConfigError, match="max_retries=-1: must be 0 or more"):
        Ray(max_retries=-1)


def test_many_more_numbers_than_processors(cluster):
    assert sorted(Ray(num_cpus=0.5).run(lambda number: number, range(100))) == list(range(100))


def test_the_cluster_of_the_process_stays(cluster):
    assert list(make("engine", "ray:auto").run(lambda number: number, [1])) == [1]
    assert ray.is_initialized()
