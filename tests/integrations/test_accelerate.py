"""Training with Accelerate: a loader that is prepared stays as it is, and is in the checkpoint."""

from __future__ import annotations

import pytest
from accelerate import Accelerator, skip_first_batches
from torch.utils.data import DataLoader  # noqa: TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset

EXAMPLE = "train_accelerate.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "accelerate", ranks=2)


def test_it_trains_as_without_it(alone, plain):
    alone.check(plain)


@pytest.mark.parametrize(("stop", "before", "after"), [(10, 2, 1), (13, 1, 2)])
def test_losses_after_a_stop_are_the_same(run, alone, stop, before, after):
    out = f"accelerate-{stop}"
    run(EXAMPLE, out, ranks=before, steps=stop, every=1)
    run(EXAMPLE, out, ranks=after, workers=1).check(alone)


def test_losses_after_a_kill_are_the_same(run):
    last = run.killed(EXAMPLE, "accelerate-killed", after=10, ranks=2)
    log = run(EXAMPLE, "accelerate-killed", ranks=2, steps=last + 15)
    assert len(log.processes) == 2
    log.check(run(EXAMPLE, "accelerate-alone", ranks=2, steps=last + 15))


@pytest.mark.parametrize("workers", [0, 2])
def test_skipped_batches_are_those_of_the_named_epoch(tmp_path, workers):
    with MDSWriter(out=tmp_path, columns={"n": "int"}) as out:
        out.write_batch({"n": list(range(40))})

    def make_dataset():
        return StreamingDataset(local=str(tmp_path), shuffle=True, batch_size=4)

    whole = StreamingDataLoader(make_dataset())
    epochs = [[batch["n"].tolist() for batch in whole] for _ in range(4)]
    loader = DataLoader(make_dataset(), batch_size=4, num_workers=workers)
    loader = Accelerator(cpu=True).prepare(loader)
    loader.set_epoch(2)
    assert [batch["n"].tolist() for batch in skip_first_batches(loader, 3)] == epochs[2][3:]
    assert [batch["n"].tolist() for batch in loader] == epochs[3]
