"""mosaicml-streaming as a fixture; `tox -c tests -e peers` has it installed."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace

import numpy as np
import pytest

if find_spec("streaming") is None:
    collect_ignore_glob = ["test_*.py"]


HERE = Path(__file__).parent
# What they import and is not installed, before they do.
THEIRS = f"""
import runpy
import torchvision.datasets, torchvision.transforms.functional
runpy.run_path({str(HERE / "stubs.py")!r})["install"]()
runpy.run_path("program.py", run_name="__main__")
"""
SIDES = {
    "theirs": ["-W", "ignore", "-c", THEIRS],
    "ours": ["-m", "streamplug_mosaic", "program.py"],
    "plain": ["program.py"],
}


@pytest.fixture(scope="session")
def readme():
    """Return a function that gives the README of an installed package, which its metadata have."""
    return lambda package: metadata(package).get_payload() or metadata(package)["Description"]


@pytest.fixture
def shown(tmp_path):
    """Return a function that runs a program, and returns what it prints."""

    def run(program, side):
        folder = tmp_path / side
        folder.mkdir(exist_ok=True)
        (folder / "program.py").write_text(program, encoding="utf-8")
        path = [str(HERE / "standins"), os.environ.get("PYTHONPATH", "")]
        # A new directory, for streams without `local`; with a short path, as torch's workers name sockets
        # in it, and wait for ever if these names are longer than 107 bytes.
        with tempfile.TemporaryDirectory() as temporary:
            done = subprocess.run(
                [sys.executable, *SIDES[side]],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, path)),
                    "TMPDIR": temporary,
                },
                capture_output=True,
                text=True,
                timeout=280,
                check=False,
            )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def mosaic() -> ModuleType:
    """Return the package `streaming`."""
    runpy.run_path(str(Path(__file__).with_name("stubs.py")))["install"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import streaming
    # Its writer looks once in a second whether its uploads, which here are none, are done.
    streaming.base.format.base.writer.sleep = lambda seconds: time.sleep(seconds / 1000)
    return streaming


@pytest.fixture(scope="session")
def mosaic_plan(mosaic):
    """Return a function that makes what mosaicml-streaming plans with: a data set without data."""

    def make(shards, weights, *, epoch_size, seed, **settings):
        streams = [
            mosaic.Stream(local=f"nowhere-{number}", **weight)
            for number, weight in enumerate(weights)
        ]
        mosaic.Stream.validate_weights(streams)
        sizes = np.array([sum(stream) for stream in shards])
        flat = np.array([size for stream in shards for size in stream])
        counts = np.array([len(stream) for stream in shards])
        plan = SimpleNamespace(
            streams=streams,
            num_streams=len(streams),
            shuffle_seed=seed,
            samples_per_shard=flat,
            sample_offset_per_shard=np.cumsum(flat) - flat,
            shards_per_stream=counts,
            shard_offset_per_stream=np.cumsum(counts) - counts,
            epoch_size=mosaic.Stream.apply_weights(streams, sizes, epoch_size, seed),
            **settings,
        )
        plan.resample_streams = MethodType(mosaic.StreamingDataset.resample_streams, plan)
        return plan

    return make
