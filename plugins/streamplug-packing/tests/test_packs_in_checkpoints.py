"""Packs in checkpoints of torch.distributed, where each rank has a state of its own."""

from __future__ import annotations

import importlib
import json
from importlib import import_module
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, World  # noqa: E402
from streamplug.errors import StateError  # noqa: E402

process = import_module(f"{__name__.rpartition('.')[0]}.packing_process")
RANKS, PACKS, MORE = 2, 7, 5
pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled|unavailable)", "ignore:TypedStorage is deprecated"
)


class RankStates:
    """The states of all ranks as one value, as in docs/howto/packing.md."""

    def __init__(self, loader):
        self.loader = loader

    def state_dict(self):
        states = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(states, self.loader.state_dict())
        return {"states": json.dumps(states)}

    def load_state_dict(self, saved):
        self.loader.load_state_dict(json.loads(saved["states"]))


def make_rank(folder, rank):
    world = World(ranks_per_node=RANKS, rank=rank)
    return process.make_loader(folder, packs_per_epoch=20, world=world)


def ids_of(packs, count):
    return [pack["sample_ids"] for pack in islice(packs, count)]


def save_and_load(rank, folder, out):
    dcp = importlib.import_module("torch.distributed.checkpoint")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{out}/group", world_size=RANKS, rank=rank
    )
    loader = make_rank(folder, rank)
    packs = iter(loader)
    ids_of(packs, PACKS)
    dcp.save({"packs": RankStates(loader)}, checkpoint_id=f"{out}/whole")
    dcp.save({"packs": loader}, checkpoint_id=f"{out}/by-key")
    expected = ids_of(packs, MORE)
    again = make_rank(folder, rank)
    dcp.load({"packs": RankStates(again)}, checkpoint_id=f"{out}/whole")
    assert ids_of(again, MORE) == expected
    with pytest.raises(StateError, match=r"list of (them|the states of all ranks)"):
        dcp.load({"packs": make_rank(folder, rank)}, checkpoint_id=f"{out}/by-key")
    torch.distributed.destroy_process_group()


def test_states_of_all_ranks_are_one_value_of_a_checkpoint(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}, size_limit=300) as writer:
        writer.write_batch({"n": np.arange(400)})
    torch.multiprocessing.start_processes(
        save_and_load,
        (str(tmp_path / "set"), str(tmp_path)),
        nprocs=RANKS,
        start_method="fork",  # so that torch is imported once
    )


def test_a_state_with_values_of_several_ranks_is_refused(tmp_path):
    with MDSWriter(out=tmp_path, columns={"n": "int"}, size_limit=300) as writer:
        writer.write_batch({"n": np.arange(400)})
    loaders = [make_rank(str(tmp_path), rank) for rank in range(RANKS)]
    for loader in loaders:
        ids_of(loader, PACKS)
    own, other = (loader.state_dict() for loader in loaders)
    for mixed in (
        {**own, "packing": {**own["packing"], "bins": other["packing"]["bins"]}},
        {**own, "packing": {**own["packing"], "checksum": other["packing"]["checksum"]}},
        {**own, "order": {**own["order"], "sample_in_epoch": own["order"]["sample_in_epoch"] + 8}},
    ):
        with pytest.raises(StateError, match=r"values of several ranks.*as one value"):
            loaders[0].load_state_dict(mixed)
    loaders[0].load_state_dict(own)
