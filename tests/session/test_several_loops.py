"""Loops over one data set that run side by side, without torch."""

from __future__ import annotations

import pytest

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError

SIZE, BATCH = 40, 4


@pytest.fixture
def dataset(tmp_path) -> StreamingDataset:
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set", max_samples_per_shard=9) as writer:
        writer.write_batch({"n": list(range(SIZE))})
    return StreamingDataset(local=str(tmp_path / "set"), batch_size=BATCH, shuffle=True)


@pytest.mark.parametrize("iterate", [iter, StreamingDataset.batches])
@pytest.mark.parametrize("used", [1, 2])
def test_a_loop_does_not_go_on_after_a_state_was_loaded_and_another_loop_began(
    dataset, iterate, used
):
    state, loop = dataset.state_dict(), iterate(dataset)
    for _ in range(used):
        next(loop)
    dataset.load_state_dict(state)
    new = dataset.batches()
    for _ in range(5):
        next(new)
    with pytest.raises(ConfigError, match="leave the loop and start another"):
        list(loop)
    assert dataset.state_dict()["sample_in_epoch"] == 5 * BATCH
    assert len(list(new)) == SIZE // BATCH - 5
