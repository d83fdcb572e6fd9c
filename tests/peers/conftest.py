"""mosaicml-streaming as a fixture; `tox -e peers` has it installed."""

from __future__ import annotations

import runpy
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

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
