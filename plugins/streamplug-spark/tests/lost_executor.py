"""Writes a data set to a folder below the one that it is given, and kills an executor meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from streamplug import write_parts

FOLDER = Path(sys.argv[1])


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def samples(part, folder=FOLDER):
    for n in range(500 * part, 500 * part + 500):
        yield {"n": n}
        if n == 1250 and not (folder / "killed").exists():
            (folder / "killed").touch()
            # The parent forks workers like this one; its own is the executor.
            os.kill(parent(os.getppid()), signal.SIGKILL)
            time.sleep(2)


if __name__ == "__main__":
    builder = SparkSession.builder.master("local-cluster[2, 1, 512]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }.items():
        builder = builder.config(name, value)
    builder.getOrCreate()
    write_parts(
        samples,
        range(6),
        columns={"n": "int"},
        out=FOLDER / "set",
        engine="spark",
        size_limit="1kb",
        hashes=["sha1"],
    )
