from __future__ import annotations

import os
import sys

import pytest


@pytest.fixture(scope="session")
def spark():
    """Two threads of one machine, which try again what loses its worker."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    yield from started("local[2, 4]")


@pytest.fixture(scope="session")
def session():
    """Starts a session, for as long as a test needs it."""
    return started


def started(master, **settings):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
