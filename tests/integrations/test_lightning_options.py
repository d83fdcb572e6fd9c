"""Options of Lightning's Trainer that change how it treats a loader."""

from __future__ import annotations

import lightning
import numpy as np
import pytest
import torch  # noqa: TID251
from lightning.pytorch.callbacks import ModelCheckpoint

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS, EPOCHS = 6, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("set") / "set"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": np.arange(4 * STEPS)})
    return str(out)


def make_loader(folder, *, shuffle=True):
    dataset = StreamingDataset(local=folder, shuffle=shuffle, batch_size=4)
    return StreamingDataLoader(dataset, batch_transform=lambda columns: {"seen": columns["n"]})


class Net(lightning.LightningModule):
    """Notes the batches, each with its epoch."""

    def __init__(self, *, estimates=False):
        super().__init__()
        self.layer, self.estimates = torch.nn.Linear(1, 1), estimates
        self.batches = []

    def training_step(self, batch, _):
        self.batches.append((self.current_epoch, batch["seen"].tolist()))
        return self.layer(torch.ones(1)).sum()

    def predict_step(self, batch, _):
        self.batches.append((0, batch["seen"].tolist()))

    def configure_optimizers(self):
        if self.estimates:
            assert self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(lightning.LightningDataModule):
    saved = None

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def train_dataloader(self):
        self.loader = make_loader(self.folder)
        if self.saved is not None:
            self.loader.load_state_dict(self.saved)
        return self.loader


class DataWithState(Data):
    def state_dict(self):
        return {"loader": self.loader.state_dict()}

    def load_state_dict(self, state_dict):
        self.saved = state_dict["loader"]


def make_trainer(**options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"enable_checkpointing": False, "max_epochs": EPOCHS, **options}
    return lightning.Trainer(accelerator="cpu", **quiet, **options)


def run_in_two(folder, place, stop, kind, *, estimates, **options):
    """Return the batches of a run that stops after some steps and resumes."""
    found = []
    for max_steps, checkpoint in ((stop, None), (-1, str(place / "last.ckpt"))):
        saves = ModelCheckpoint(place, every_n_train_steps=1, save_last=True)
        trainer = make_trainer(
            callbacks=[saves], enable_checkpointing=True, max_steps=max_steps, **options
        )
        net = Net(estimates=estimates)
        trainer.fit(net, kind(folder), ckpt_path=checkpoint)
        found += net.batches
    return found


@pytest.mark.parametrize("limit", [STEPS, 4])
@pytest.mark.parametrize("stop", ["within an epoch", "at its end"])
@pytest.mark.parametrize(
    ("kind", "estimates"), [(Data, False), (DataWithState, False), (DataWithState, True)]
)
def test_a_resumed_run_is_exact(folder, tmp_path, limit, stop, kind, estimates):
    net = Net()
    make_trainer(limit_train_batches=limit).fit(net, Data(folder))
    assert len(net.batches) == EPOCHS * limit
    steps = limit if stop == "at its end" else limit + 2
    options = {"estimates": estimates, "limit_train_batches": limit}
    assert run_in_two(folder, tmp_path, steps, kind, **options) == net.batches


def test_estimated_stepping_batches_keeps_lightning_from_loading_the_state(folder, tmp_path):
    """If this fails, Lightning loads it now: leave the note out of the page."""
    net = Net()
    make_trainer().fit(net, Data(folder))
    assert run_in_two(folder, tmp_path, 2, Data, estimates=True) != net.batches


@pytest.mark.parametrize("shuffle", [False, True])
def test_overfitting_reads_the_first_batches_of_each_epoch(folder, shuffle):
    net, loader = Net(), make_loader(folder, shuffle=shuffle)
    make_trainer(overfit_batches=2).fit(net, loader)
    whole = make_loader(folder, shuffle=shuffle)
    expected = [
        (epoch, batch["seen"].tolist()) for epoch in range(EPOCHS) for batch in [*whole][:2]
    ]
    assert net.batches == expected
    assert (expected[0][1] == expected[2][1]) is not shuffle


def test_prediction_reads_a_whole_epoch_with_the_transform(folder):
    net = Net()
    make_trainer().predict(net, make_loader(folder))
    expected = [(0, batch["seen"].tolist()) for batch in make_loader(folder)]
    assert net.batches == expected
