from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter


@pytest.fixture
def many(tmp_path):
    """Shards of samples of many sizes."""
    draws = np.random.default_rng(0)
    with MDSWriter(out=tmp_path, columns={"b": "bytes"}, size_limit=100_000) as out:
        for n in range(1600):
            out.write({"b": bytes([n % 251]) * int(draws.integers(1, 5000))})
    return tmp_path
