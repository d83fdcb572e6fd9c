"""mosaicml-streaming as a fixture; `tox -e peers` has it installed."""

from __future__ import annotations

import runpy
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace

import numpy as np
import pytest

if find_spec("streaming") is None:
    collect_ignore_glob = ["test_*.py"]


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
