"""A loader in checkpoints of torch.distributed, and as the data loader of torchtitan."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import StateError  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled|unavailable)", "ignore:TypedStorage is deprecated"
)

GLOBAL_BATCH = 12
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@runtime_checkable
class BaseDataLoader(Protocol):
    """What torchtitan asks of a data loader."""

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class WholeState(StreamingDataLoader):
    """The loader of docs/integrations/trainers.md."""

    def state_dict(self) -> dict[str, Any]:
        return {"streamplug": json.dumps(super().state_dict())}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        super().load_state_dict(json.loads(saved["streamplug"]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("streams")
    for number in range(2):
        with MDSWriter(out=top / str(number), columns={"n": "int"}, size_limit=300) as out:
            out.write_batch({"n": np.arange(60) + 100 * number})
    return [str(top / str(number)) for number in range(2)]


@pytest.fixture(scope="module")
def dcp():
    """Import what takes long when it is used, not in every process that collects tests."""
    return importlib.import_module("torch.distributed.checkpoint")


def make(folders, workers=0, ranks=1, rank=0, kind=StreamingDataLoader):
    dataset = StreamingDataset(
        streams=[Stream(local=folder, proportion=1) for folder in folders],
        shuffle=True,
        batch_size=GLOBAL_BATCH // ranks,
        world=World(ranks_per_node=ranks, rank=rank),
    )
    return kind(dataset, num_workers=workers)


def take(batches, count):
    return [batch["n"].tolist() for _, batch in zip(range(count), batches)]


@WORKERS
@pytest.mark.parametrize("kind", [StreamingDataLoader, WholeState])
def test_a_checkpoint_within_an_epoch_is_exact(folders, tmp_path, dcp, workers, kind):
    whole = take(make(folders), 10)
    loader = make(folders, workers, kind=kind)
    assert isinstance(loader, dcp.stateful.Stateful)
    assert isinstance(loader, BaseDataLoader)
    batches = iter(loader)
    assert take(batches, 4) == whole[:4]
    weights = {"w": torch.ones(3)}
    dcp.save({"model": weights, "loader": loader}, checkpoint_id=tmp_path / "step-4")
    batches.close()
    again = make(folders, workers, kind=kind)
    loaded = {"model": {"w": torch.zeros(3)}, "loader": again}
    dcp.load(loaded, checkpoint_id=tmp_path / "step-4")
    assert loaded["model"]["w"].tolist() == [1, 1, 1]
    assert take(again, 10) == whole[4:]


def test_changed_proportions_need_the_state_as_one_value(folders, tmp_path, dcp):
    for kind in (StreamingDataLoader, WholeState):
        loader = make(folders, kind=kind)
        take(loader, 3)
        loader.load_state_dict(loader.state_dict())
        loader.dataset.set_proportions([0, 1])
        dcp.save({"loader": loader}, checkpoint_id=tmp_path / kind.__name__)
    expected = take(loader, 5)
    again = make(folders, kind=WholeState)
    dcp.load({"loader": again}, checkpoint_id=tmp_path / "WholeState")
    assert take(again, 5) == expected
    with pytest.raises(StateError, match=r"0 of 1 changes.*save it as one value"):
        dcp.load({"loader": make(folders)}, checkpoint_id=tmp_path / "StreamingDataLoader")


def make_planned(folders, kind):
    dataset = StreamingDataset(
        streams=[Stream(local=folder) for folder in folders],
        curriculum={0: [1, 0], 2: [1, 1], 4: [0, 1]},
        epoch_size=60,
        shuffle=True,
        batch_size=GLOBAL_BATCH,
    )
    return kind(dataset)


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_a_planned_curriculum_needs_the_state_as_one_value(folders, tmp_path, dcp, steps):
    loader = make_planned(folders, WholeState)
    batches = iter(loader)
    take(batches, steps)
    dcp.save({"loader": loader}, checkpoint_id=tmp_path / "whole")
    again = make_planned(folders, WholeState)
    dcp.load({"loader": again}, checkpoint_id=tmp_path / "whole")
    assert take(again, 5 - steps) == take(batches, 5 - steps)
    assert take(again, 5) == take(loader, 5)
    loader = make_planned(folders, StreamingDataLoader)
    take(loader, steps)
    dcp.save({"loader": loader}, checkpoint_id=tmp_path / "by-key")
    again = make_planned(folders, StreamingDataLoader)
    if steps > 1:  # the plan has changed the proportions
        with pytest.raises(StateError, match=r"changes.*save it as one value"):
            dcp.load({"loader": again}, checkpoint_id=tmp_path / "by-key")
    else:
        dcp.load({"loader": again}, checkpoint_id=tmp_path / "by-key")
        assert again.state_dict() == loader.state_dict()


def test_the_epoch_of_a_trainer_is_in_the_state_as_one_value(folders, tmp_path, dcp):
    expected = make(folders)
    expected.set_epoch(1)
    loader = make(folders, kind=WholeState)
    loader.set_epoch(0)
    take(loader, 3)  # the trainer ends its epoch early
    dcp.save({"loader": loader}, checkpoint_id=tmp_path / "whole")
    again = make(folders, kind=WholeState)
    dcp.load({"loader": again}, checkpoint_id=tmp_path / "whole")
    again.set_epoch(1)
    assert take(again, 5) == take(expected, 5)


def save_as_rank(rank, dcp, folders, out):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{out}.group", world_size=2, rank=rank
    )
    loader = make(folders, ranks=2, rank=rank, kind=WholeState)
    take(loader, 3)
    dcp.save({"loader": loader}, checkpoint_id=out)
    torch.distributed.destroy_process_group()


def test_a_checkpoint_of_two_ranks_goes_on_with_another_number(folders, tmp_path, dcp):
    # Forked ranks need not import torch again.
    torch.multiprocessing.start_processes(
        save_as_rank, (dcp, folders, str(tmp_path / "two")), nprocs=2, start_method="fork"
    )
    whole = take(make(folders), 10)
    for ranks in (1, 3):
        parts = []
        for rank in range(ranks):
            loader = make(folders, ranks=ranks, rank=rank, kind=WholeState)
            dcp.load({"loader": loader}, checkpoint_id=tmp_path / "two")
            parts.append(take(loader, 7))
        assert [sorted(n for part in step for n in part) for step in zip(*parts)] == [
            sorted(step) for step in whole[3:]
        ]
