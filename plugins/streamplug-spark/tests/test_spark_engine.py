from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: tox -c tests -e engines")

from streamplug_testing import EngineTests

from streamplug.errors import ConfigError
from streamplug.plugin import make

# Of sockets that pyspark leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


class TestSpark(EngineTests):
    name = "spark"
    deaths = 2

    @pytest.fixture(autouse=True)
    def connected(self, spark):
        pass

    @pytest.fixture(autouse=True)
    def place(self, s3_place):
        self.s3 = s3_place

    def afar(self):
        return self.s3


def test_a_session_of_another_cluster_is_refused(spark):
    with pytest.raises(ConfigError, match=r"there is a session of local\[2, 4\] already"):
        list(make("engine", "spark:spark://127.0.0.1:9").run(lambda number: number, [1]))


def test_numbers_are_told_while_others_are_at_work(spark, tmp_path):
    def task(number):
        import time

        end = time.monotonic() + 60
        while number and not (tmp_path / "seen").exists() and time.monotonic() < end:
            time.sleep(0.01)

    calls = make("engine", "spark").run(task, [1, 0])
    assert next(calls) == 0
    (tmp_path / "seen").touch()
    assert list(calls) == [1]
