"""The data loader for torchtitan: built by its config, saved and loaded as torchtitan's checkpoints do."""

from __future__ import annotations

import numpy as np
import pytest
import torch  # noqa: TID251
import torch.distributed.checkpoint as dcp  # noqa: TID251
from titan_loader import StreamplugDataLoader
from torchtitan.components.dataloader import BaseDataLoader

from streamplug import MDSWriter

pytestmark = pytest.mark.filterwarnings("ignore")

LENGTH, GLOBAL_BATCH = 16, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("set") / "set"
    rng = np.random.default_rng(1)
    with MDSWriter(out=out, columns={"tokens": "ndarray:uint16"}, size_limit="2kb") as writer:
        for size in rng.integers(5, 60, 60).tolist():
            writer.write({"tokens": rng.integers(1, 999, size).astype(np.uint16)})
    return str(out)


def build(folder, ranks=1, rank=0, workers=0):
    config = StreamplugDataLoader.Config(dataset_path=folder, num_workers=workers)
    return config.build(
        dp_world_size=ranks,
        dp_rank=rank,
        tokenizer=None,
        seq_len=LENGTH,
        local_batch_size=GLOBAL_BATCH // ranks,
        snapshot_every_n_steps=None,
    )


def take(loader, count):
    """Return the inputs of some steps as sets of rows."""
    return [rows["input"].tolist() for _, (rows, _) in zip(range(count), loader)]


def test_inputs_and_labels_are_those_of_a_language_model(folder):
    loader = build(folder)
    assert isinstance(loader, BaseDataLoader)
    rows, labels = next(iter(loader))
    assert rows["input"].shape == labels.shape == (GLOBAL_BATCH, LENGTH)
    assert rows["input"].dtype == labels.dtype == torch.int64
    assert (rows["input"][:, 1:] == labels[:, :-1]).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", [4, 13])
def test_a_checkpoint_goes_on_with_any_number_of_ranks(folder, tmp_path, workers, step):
    whole = [sorted(rows) for rows in take(build(folder), step + 10)]
    loader = build(folder, workers=workers)
    take(loader, step)
    dcp.save({"dataloader": loader}, checkpoint_id=tmp_path / "step")
    for ranks in (1, 2, 3):
        parts = []
        for rank in range(ranks):
            again = build(folder, ranks, rank, workers)
            dcp.load({"dataloader": again}, checkpoint_id=tmp_path / "step")
            parts.append(take(again, 10))
        assert [sorted(row for part in rows for row in part) for rows in zip(*parts)] == (
            whole[step:]
        )
