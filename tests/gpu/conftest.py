"""Tests on a CUDA device: `tox -c tests -e gpu` runs them, and fails where there is none."""

from __future__ import annotations

import os

import pytest

try:
    import torch  # noqa: TID251

    HAS_DEVICE = torch.cuda.is_available()
except ImportError:
    HAS_DEVICE = False

if not HAS_DEVICE:
    collect_ignore_glob = ["test_*.py"]
    if os.environ.get("STREAMPLUG_TEST_GPU"):
        raise pytest.UsageError(
            "tests/gpu needs a CUDA device, and torch finds none: name a torch that is built for CUDA by "
            "STREAMPLUG_TEST_TORCH, see tests/tox.ini, and run it on a machine with a GPU"
        )
