"""A loader in checkpoints of torch.distributed, and as the data loader of torchtitan."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World  # noqa: E402

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


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("streams")
    for number in range(2):
        columns = {"n": "int", "tokens": "ndarray:int32"}
        rng = np.random.default_rng(number)
        with MDSWriter(out=top / str(number), columns=columns, size_limit=300) as out:
            for n in range(60):
                tokens = rng.integers(0, 99, int(rng.integers(1, 9)), np.int32)
                out.write({"n": n + 100 * number, "tokens": tokens})
    return [str(top / str(number)) for number in range(2)]


@pytest.fixture(scope="module")
def dcp():
    """Import what takes long when it is used, not in every process that collects tests."""
    return importlib.import_module("torch.distributed.checkpoint")


def make(folders, workers=0, ranks=1, rank=0, weights=({"proportion": 1},) * 2, **options):
    dataset = StreamingDataset(
        streams=[Stream(local=folder, **weight) for folder, weight in zip(folders, weights)],
        shuffle=True,
        world=World(ranks_per_node=ranks, rank=rank),
        **{"batch_size": GLOBAL_BATCH // ranks, **options},
    )
    return StreamingDataLoader(dataset, num_workers=workers)


def make_tokens(folders, **options):
    tokens = importlib.import_module("streamplug_tokens")
    ranks, rank = options.get("ranks", 1), options.get("rank", 0)
    dataset = tokens.TokenDataset(
        streams=[Stream(local=folder) for folder in folders],
        tokens=tokens.TokenBlocks(column="tokens", length=8, separator=0),
        shuffle=True,
        batch_size=GLOBAL_BATCH // ranks,
        world=World(ranks_per_node=ranks, rank=rank),
    )
    return StreamingDataLoader(dataset)


UNWEIGHTED: dict[str, Any] = {"weights": ({},) * 2}
BUDGET: dict[str, Any] = {
    **UNWEIGHTED,
    "batch_size": None,
    "batching_method": "budget",
    "batch_budget": {"limit": 24, "column": "tokens", "micro_batches": 4},
}
PLAN: dict[str, Any] = {"curriculum": {0: [1, 0], 2: [1, 1], 4: [0, 1]}, "epoch_size": 60}
KINDS: dict[str, Callable[..., Any]] = {
    "fixed": make,
    "planned": partial(make, **UNWEIGHTED, **PLAN),
    "by hand": make,
    "stratified by hand": partial(make, batching_method="stratified"),
    "budget": partial(make, **BUDGET),
    "planned budget": partial(make, **{**BUDGET, **PLAN, "epoch_size": 240}),
    "tokens": make_tokens,
}
NEEDS = {
    "budget": "streamplug_budget",
    "planned budget": "streamplug_budget",
    "tokens": "streamplug_tokens",
}


def value_of(batch):
    """Return the values of a batch, in the order of samples."""
    return batch["n"].tolist() if "n" in batch else batch["tokens"].reshape(-1, 8).tolist()


def take(batches, count):
    return [value_of(batch) for _, batch in zip(range(count), batches)]


@WORKERS
def test_a_checkpoint_within_an_epoch_is_exact(folders, tmp_path, dcp, workers):
    whole = take(make(folders), 10)
    loader = make(folders, workers)
    assert isinstance(loader, dcp.stateful.Stateful)
    assert isinstance(loader, BaseDataLoader)
    batches = iter(loader)
    assert take(batches, 4) == whole[:4]
    weights = {"w": torch.ones(3)}
    dcp.save({"model": weights, "loader": loader}, checkpoint_id=tmp_path / "step-4")
    batches.close()
    again = make(folders, workers)
    loaded = {"model": {"w": torch.zeros(3)}, "loader": again}
    dcp.load(loaded, checkpoint_id=tmp_path / "step-4")
    assert loaded["model"]["w"].tolist() == [1, 1, 1]
    assert take(again, 10) == whole[4:]


def test_the_epoch_of_a_trainer_is_in_the_state(folders, tmp_path, dcp):
    expected = make(folders)
    expected.set_epoch(1)
    loader = make(folders)
    loader.set_epoch(0)
    take(loader, 3)  # the trainer ends its epoch early
    dcp.save({"loader": loader}, checkpoint_id=tmp_path / "state")
    again = make(folders)
    dcp.load({"loader": again}, checkpoint_id=tmp_path / "state")
    again.set_epoch(1)
    assert take(again, 5) == take(expected, 5)


def as_ranks(ranks, function, *arguments):
    """Call a function in processes of a gloo group; forked ones need not import torch again."""
    torch.multiprocessing.start_processes(
        run_as_rank, (ranks, function, arguments), nprocs=ranks, start_method="fork"
    )


def run_as_rank(rank, ranks, function, arguments):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{arguments[0]}/group-{ranks}", world_size=ranks, rank=rank
    )
    function(rank, ranks, *arguments)
    torch.distributed.destroy_process_group()


def save_all(rank, ranks, out, dcp, folders, kinds):
    for kind in kinds:
        loader = KINDS[kind](folders, ranks=ranks, rank=rank)
        batches = iter(loader)
        read = take(batches, 1)
        if "by hand" in kind:
            loader.dataset.set_proportions([1, 3])
        read += take(batches, 3 if "budget" in kind else 2)  # whole global batches
        if "by hand" in kind:
            loader.dataset.set_proportions([0, 1])
        if kind in ("fixed", "planned", "by hand"):
            dcp.async_save({"loader": loader}, checkpoint_id=f"{out}/{ranks} {kind}").result()
        else:
            dcp.save({"loader": loader}, checkpoint_id=f"{out}/{ranks} {kind}")
        read += [value_of(batch) for batch in batches] + take(loader, 8 // ranks)
        Path(f"{out}/{ranks} {kind} whole {rank}").write_text(json.dumps(read))


def load_all(rank, ranks, out, dcp, folders, kinds, saved_on):
    for kind in kinds:
        loader = KINDS[kind](folders, ranks=ranks, rank=rank)
        dcp.load({"loader": loader}, checkpoint_id=f"{out}/{saved_on} {kind}")
        read = [value_of(batch) for batch in loader] + take(loader, 8 // ranks)
        Path(f"{out}/{saved_on} {kind} on {ranks} {rank}").write_text(json.dumps(read))


def steps_of(out, name, ranks, kind):
    """Return what all ranks read, by global batch."""
    parts = [json.loads((out / f"{name} {rank}").read_text()) for rank in range(ranks)]
    steps = [list(step) for step in zip(*parts, strict=True)]
    if "budget" in kind:  # a global batch is four batches
        count = 4 // ranks
        starts = range(0, len(steps), count)
        grouped = [chain.from_iterable(steps[at : at + count]) for at in starts]
        return [sorted(sorted(batch) for batch in step) for step in grouped]
    return [sorted(sample for batch in step for sample in batch) for step in steps]


def test_states_of_all_orders_go_on_with_other_numbers_of_ranks(folders, tmp_path, dcp):
    kinds = [kind for kind in KINDS if kind not in NEEDS or find_spec(NEEDS[kind])]
    for saved_on, loaded_on in ((2, (1, 4)), (4, (2, 4))):
        as_ranks(saved_on, save_all, tmp_path, dcp, folders, kinds)
        for ranks in loaded_on:
            (tmp_path / f"group-{ranks}").unlink(missing_ok=True)
            as_ranks(ranks, load_all, tmp_path, dcp, folders, kinds, saved_on)
            for kind in kinds:
                whole = steps_of(tmp_path, f"{saved_on} {kind} whole", saved_on, kind)
                rest = steps_of(tmp_path, f"{saved_on} {kind} on {ranks}", ranks, kind)
                done = saved_on if "budget" in kind else 3  # global batches
                count = min(len(rest), len(whole) - done)
                assert count >= 1, kind
                assert rest[:count] == whole[done:][:count], (kind, saved_on, ranks)
        for path in tmp_path.glob("group-*"):
            path.unlink()
