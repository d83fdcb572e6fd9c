"""What the plan says of a run is what the run does."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError


@pytest.fixture
def folders(tmp_path):
    for name, first, count in (("a", 0, 70), ("b", 70, 30)):
        with MDSWriter(out=tmp_path / name, columns={"n": "int"}, size_limit="400b") as out:
            out.write_batch({"n": list(range(first, first + count))})
    return [str(tmp_path / name) for name in "ab"]


def dataset(folders, rank=0, **changes):
    arguments = {
        "streams": [Stream(local=folder) for folder in folders],
        "world": World(2, 2, rank=rank),
        "batch_size": 3,
        "shuffle": True,
        "shuffle_block_size": 20,
        "num_canonical_nodes": 4,
    }
    return StreamingDataset(**{**arguments, **changes})


@pytest.mark.parametrize("algo", ["window", "global"])
@pytest.mark.parametrize("partition", ["elastic", "orig"])
def test_explain_names_what_is_read(folders, algo, partition):
    pytest.importorskip("streamplug_mosaic")
    changes = {"shuffle_algo": algo, "partition_algo": partition}
    plan = dataset(folders, **changes)
    for rank in range(4):
        run = dataset(folders, rank, **changes)
        for epoch in range(2):
            for step, batch in enumerate(run.batches()):
                uses = plan.explain(step, epoch=epoch, rank=rank)
                assert [use.sample for use in uses] == batch["n"].tolist()
                assert {(u.epoch, u.step, u.rank) for u in uses} == {(epoch, step, rank)}
                assert [use.place for use in uses] == list(range(len(uses)))


def test_explain_of_all_ranks_is_that_of_each(folders):
    plan = dataset(folders)
    parts = [plan.explain(5, rank=rank) for rank in range(4)]
    assert plan.explain(5) == [use for part in parts for use in part]
    assert len(plan.explain(5)) == 12


def test_a_use_says_where_the_sample_lies(folders):
    plan = dataset(folders)
    for use in plan.explain(2):
        one = StreamingDataset(local=folders[use.stream])
        first = int(one.samples_per_shard[: use.shard].sum())
        assert one[first + use.index] == plan[use.sample]
        assert use.file == f"shard.{use.shard:05d}.mds"


def test_where_finds_every_use(folders):
    plan = dataset(folders)
    steps = len(plan) // 3
    uses = [use for step in range(steps) for use in plan.explain(step, epoch=1)]
    for sample in range(0, 100, 7):
        assert plan.where(sample, epoch=1) == [u for u in uses if u.sample == sample]


def test_the_epoch_is_that_of_the_run_unless_told(folders):
    plan = dataset(folders, world=World())
    assert plan.explain(0) == plan.explain(0, epoch=0)
    for _ in range(2):
        list(plan.batches())
    assert plan.explain(0) == plan.explain(0, epoch=1)
    assert plan.where(3)[0].epoch == 1


def test_nothing_is_read(folders, tmp_path):
    plan = dataset(folders)
    for shard in tmp_path.glob("*/shard.*"):
        shard.unlink()
    assert len(plan.explain(0)) == 12
    assert plan.where(99)


def test_what_does_not_exist_is_refused(folders):
    plan = dataset(folders)
    with pytest.raises(ConfigError, match="step=9: epoch 0 has the steps 0 to 8"):
        plan.explain(9)
    with pytest.raises(ConfigError, match=r"step=0.5: epoch 0 has the steps 0 to 8"):
        plan.explain(0.5)
    with pytest.raises(ConfigError, match="sample_id='': there are the samples 0 to"):
        plan.where("")
    with pytest.raises(ConfigError, match="step=True: epoch 0 has the steps 0 to 8"):
        plan.explain(True)
    with pytest.raises(ConfigError, match="rank=4: there are the ranks 0 to 3"):
        plan.explain(0, rank=4)
    with pytest.raises(ConfigError, match="sample_id=100: there are the samples 0 to 99"):
        plan.where(100)
    for epoch in (-1, 1.5, True):
        with pytest.raises(ConfigError, match=f"epoch={epoch}: must be a whole number of at least"):
            plan.explain(0, epoch=epoch)
        with pytest.raises(ConfigError, match=f"epoch={epoch}: must be a whole number of at least"):
            plan.where(0, epoch=epoch)


def test_numbers_may_be_those_of_numpy(folders):
    plan = dataset(folders)
    for kind in (np.int64, np.array):
        assert plan.explain(kind(2), rank=kind(1)) == plan.explain(2, rank=1)
        assert plan.where(kind(5)) == plan.where(5)
