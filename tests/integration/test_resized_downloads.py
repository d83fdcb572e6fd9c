"""Downloads of a loop that goes on in another world: those that it still needs go on."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from streamplug_testing.http import serving

pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World

SIZE, SHARD, GLOBAL_BATCH = 24_000, 2_000, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int"}, out=out, max_samples_per_shard=SHARD) as writer:
        writer.write_batch({"id": np.arange(SIZE)})
    return out


def shards_asked_for(server):
    with server.lock:
        paths = [path for method, path, _ in server.requests if method == "GET"]
    return Counter(path for path in paths if path.startswith("shard"))


@pytest.mark.timeout(120)
def test_no_shard_is_downloaded_twice(folder, tmp_path):
    with serving(folder) as server:
        data = StreamingDataset(
            remote=server.url, local=str(tmp_path / "cache"), batch_size=GLOBAL_BATCH, world=World()
        )
        batches = iter(StreamingDataLoader(data, num_workers=2))
        read = [next(batches), next(batches)]
        server.seconds = 1.0  # so that downloads are in progress when the world changes
        for ranks in (2, 3, 1):
            data.resize(World(1, ranks))
            read.append(next(batches))
            time.sleep(0.1)
        server.seconds = 0.0
        read += list(batches)
        found = shards_asked_for(server)
    assert len(read) == SIZE // GLOBAL_BATCH
    assert len(found) == SIZE // SHARD
    assert set(found.values()) == {1}
