"""Packs in checkpoints that one rank writes, or of torch.distributed, resumed on these and other ranks."""

from __future__ import annotations

import importlib
import json
import time
from collections import Counter
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, World  # noqa: E402
from streamplug.adapters import rank_records  # noqa: E402
from streamplug.errors import StateError  # noqa: E402
from tests.rank_group import run_ranks  # noqa: E402
from tests.start_methods import SOAK  # noqa: E402

process = import_module(f"{__name__.rpartition('.')[0]}.packing_process")
SIZE, PACKS, MORE = 400, 7, 9
pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled|unavailable)", "ignore:TypedStorage is deprecated"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=300) as writer:
        writer.write_batch({"n": np.arange(SIZE)})
    return str(out)


def make_rank(folder, rank, ranks, **options):
    return process.make_loader(folder, world=World(ranks_per_node=ranks, rank=rank), **options)


def ids_of(packs, count=None):
    return [pack["sample_ids"] for pack in islice(packs, count)]


def checkpoints():
    return importlib.import_module("torch.distributed.checkpoint")


def save(rank, ranks, folder, out, workers):
    """Return the packs before and after a checkpoint, which is saved in each way."""
    loader = make_rank(folder, rank, ranks, packs_per_epoch=12, num_workers=workers)
    packs = iter(loader)
    before = ids_of(packs, PACKS)
    checkpoints().save({"packs": loader}, checkpoint_id=f"{out}/save")
    writing = checkpoints().async_save({"packs": loader}, checkpoint_id=f"{out}/async_save")
    if rank == 0:
        time.sleep(0.3)  # the others go on meanwhile
        state = loader.state_dict()
        torch.save(state, f"{out}/state.pt")
        Path(out, "state.json").write_text(json.dumps(state))
    after = ids_of(packs)
    after += ids_of(loader, MORE)
    writing.result()
    return before, after


def load(rank, ranks, folder, out, how, **options):
    loader = make_rank(folder, rank, ranks, **options)
    if how == "state.pt":
        loader.load_state_dict(torch.load(f"{out}/{how}", weights_only=True))
    elif how == "state.json":
        loader.load_state_dict(json.loads(Path(out, how).read_text()))
    else:
        checkpoints().load({"packs": loader}, checkpoint_id=f"{out}/{how}")
    return loader


def resume(rank, ranks, folder, out, how):
    loader = load(rank, ranks, folder, out, how, packs_per_epoch=12)
    packs = ids_of(loader)
    # A checkpoint of the resumed run is whole again.
    checkpoints().save({"packs": loader}, checkpoint_id=f"{out}/{how}-again")
    again = load(rank, ranks, folder, out, f"{how}-again", packs_per_epoch=12)
    return packs + ids_of(again, MORE)


def finish(rank, ranks, folder, out, how):
    """Return the packs of the rest of the epoch, and its number."""
    loader = load(rank, ranks, folder, out, how)
    epoch = loader.state_dict()["epoch"]
    return ids_of(loader) + ids_of(loader.flush()), epoch


@pytest.mark.parametrize(
    ("ranks", "workers", "others"),
    [(2, 0, (1, 4)), (2, 2, (1,)), *([(4, 2, (2,))] if SOAK else [])],
)
def test_checkpoints_resume_on_the_same_and_other_ranks(folder, tmp_path, ranks, workers, others):
    saved = run_ranks(ranks, save, ranks, folder, str(tmp_path), workers)
    for how in ("save", "async_save", "state.pt", "state.json"):
        resumed = run_ranks(ranks, resume, ranks, folder, str(tmp_path), how)
        assert resumed == [after for _, after in saved]
    for number in others:
        rest = run_ranks(number, finish, number, folder, str(tmp_path), "save")
        packs = [pack for part, _ in [*saved, *rest] for pack in part]
        assert Counter(n for pack in packs for n in pack) == dict.fromkeys(range(SIZE), 1)
        assert {epoch for _, epoch in rest} == {0}


def uneven(rank, folder, out):
    """Save after an epoch of which ranks have other numbers of packs, and in the next one."""
    loader = make_rank(folder, rank, 2)
    count = len(ids_of(loader))
    states = [loader.state_dict()]
    next(iter(loader))
    states.append(loader.state_dict())
    expected = ids_of(loader, MORE)
    again = make_rank(folder, rank, 2)
    again.load_state_dict(states[1])
    assert again.state_dict() == states[1]
    assert ids_of(again, MORE) == expected
    return count, states


def test_loops_that_end_after_other_numbers_of_packs_are_saved(folder, tmp_path):
    (first, states), (second, same_states) = run_ranks(2, uneven, folder, str(tmp_path))
    assert first != second
    assert states == same_states
    assert [state["epoch"] for state in states] == [1, 1]


def late(rank, folder, limits):
    rank_records._TIMEOUT_SECONDS, ahead = limits
    loader = make_rank(folder, rank, 2, packs_per_epoch=50)
    packs = iter(loader)
    next(packs)
    error = None
    if rank:
        ids_of(packs, ahead)
    torch.distributed.barrier()
    if rank == 0:
        ids_of(packs, 2)
        try:
            loader.state_dict()
        except StateError as caught:
            error = str(caught)
    torch.distributed.barrier()
    return error


@pytest.mark.parametrize(
    ("ahead", "error"),
    [
        (0, "rank 1 has not reached output 3 of loop 0"),
        (40, "rank 1 is 32 outputs or more ahead"),
    ],
)
def test_a_rank_that_is_elsewhere_is_named(folder, ahead, error):
    assert error in run_ranks(2, late, folder, (0.2, ahead))[0]


class ClosedStore:
    def set(self, key, value):
        raise RuntimeError("Broken pipe")


def after_the_store(rank, folder):
    loader = make_rank(folder, rank, 2, packs_per_epoch=9)
    packs = iter(loader)
    next(packs)
    loader._records._store = ClosedStore()
    count = len(ids_of(packs))
    with pytest.raises(StateError, match="no records of other ranks: Broken pipe"):
        loader.state_dict()
    return count


def test_a_rank_reads_on_when_the_process_with_the_store_has_ended(folder):
    assert run_ranks(2, after_the_store, folder) == [8, 8]


def other_proportions(rank, folder):
    loader = make_rank(folder, rank, 2, packs_per_epoch=20)
    ids_of(loader, 3)
    loader.dataset.load_state_dict(loader.dataset.session.state_at(0, 20 + rank))
    with pytest.raises(StateError, match=r"was set to epoch and step 0,2[01].*set_proportions"):
        loader.state_dict()


def test_data_sets_that_ranks_set_to_other_positions_are_refused(folder):
    run_ranks(2, other_proportions, folder)


def replicas(rank, folder):
    loader = make_rank(folder, rank, 4, packs_per_epoch=12, replication=2)
    packs = iter(loader)
    before = ids_of(packs, PACKS)
    state = loader.state_dict()
    again = make_rank(folder, rank, 4, packs_per_epoch=12, replication=2)
    again.load_state_dict(state)
    assert ids_of(again) == ids_of(packs)
    return before, state


def test_ranks_that_read_the_same_samples_have_one_record(folder):
    packs, states = zip(*run_ranks(4, replicas, folder))
    assert packs[0] == packs[1] != packs[2] == packs[3]
    assert all(state == states[0] for state in states)
    assert list(json.loads(states[0]["packing"])["ranks"]) == ["0", "1"]


def test_a_state_of_one_rank_is_refused_on_another(folder):
    loaders = [make_rank(folder, rank, 2) for rank in range(2)]
    ids_of(loaders[0], PACKS)
    with pytest.raises(StateError, match=r"of the ranks \[0\] of 2 .*; this is rank 1 of 2"):
        loaders[1].load_state_dict(loaders[0].state_dict())


def before_the_first_pack(rank, folder):
    state = make_rank(folder, rank, 2).state_dict()
    again = make_rank(folder, rank, 2)
    again.load_state_dict(state)
    assert again.state_dict() == state
    return ids_of(again, MORE), ids_of(make_rank(folder, rank, 2), MORE)


def test_a_state_before_the_first_pack_is_loaded_on_each_rank(folder):
    for packs, expected in run_ranks(2, before_the_first_pack, folder):
        assert packs == expected
    for rank in range(2):  # nor is a process group needed
        packs, expected = before_the_first_pack(rank, folder)
        assert packs == expected


def full_or_open(sample):
    """Return a sample that fills a pack of 64, or half of one."""
    return {"tokens": np.zeros(64 if sample["n"] % 3 else 32, np.int32)}


def in_step(packs, count, ranks):
    """Return some packs; of all ranks, one that ends its loop ends those of the others, too."""
    loop, found = iter(packs), []
    for _ in range(count):
        pack = next(loop, None)
        has_ended = [False] * ranks
        torch.distributed.all_gather_object(has_ended, pack is None)
        found += [] if pack is None else [pack["sample_ids"]]
        if any(has_ended):
            return found + ids_of(loop)
    return found


def programs(rank, ranks, folder, seeds):
    """Return the states of random programs, which are those of the loaders that loaded them."""
    rank_records._TIMEOUT_SECONDS = 20
    states = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        bins, limit = random.choice([1, 2, 4, 16]), random.choice([None, None, 3])
        options = {"open_bins": int(bins), "packs_per_epoch": limit, "transform": full_or_open}
        both = [make_rank(folder, rank, ranks, **options)]
        steps = random.choice(["loop", "some", "flush", "move", "save"], 6)
        for number, (step, count) in enumerate(zip(steps, random.integers(1, 4, 6))):
            found = []
            for loader in both:
                if step == "loop":
                    found.append(ids_of(loader))
                elif step == "some":
                    found.append(in_step(loader, count, ranks))
                elif step == "flush":
                    found.append(ids_of(loader.flush()))
                elif step == "move":
                    session = loader.dataset.session
                    loader.dataset.load_state_dict(session.state_at(number + 5, 0))
            # A loader that resumed within a loop yields the rest of it.
            assert all(packs == found[0][: len(packs)] for packs in found[1:])
            state = both[0].state_dict()
            states.append(state)
            both = [both[0], make_rank(folder, rank, ranks, **options)]
            both[1].load_state_dict(json.loads(json.dumps(state)))
            assert both[1].state_dict() == state
    return states


@pytest.mark.parametrize("ranks", [2, 3])
def test_states_are_the_same_on_ranks_that_yield_few_packs_or_none(tmp_path, ranks):
    with MDSWriter(out=tmp_path / "few", columns={"n": "int"}) as writer:
        writer.write_batch({"n": np.arange(7)})
    seeds = range(30 if SOAK else 8)
    first, *others = run_ranks(ranks, programs, ranks, str(tmp_path / "few"), seeds)
    assert others == [first] * (ranks - 1)
