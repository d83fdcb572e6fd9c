"""Pipelines and their loaders in checkpoints of torch.distributed, resumed on these and other ranks."""

from __future__ import annotations

import importlib
import json
from itertools import islice

import pytest
import streamplug_webdataset as wds

from streamplug import World
from streamplug.errors import StateError
from tests.rank_group import run_ranks
from tests.start_methods import SOAK

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is (disabled|unavailable)"),
    pytest.mark.filterwarnings("ignore:(TypedStorage is|This DataLoader will)"),
]
SHARDS, COUNT = 4, 40
TOTAL, DONE = SHARDS * COUNT, 3


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tars")
    for shard in range(SHARDS):
        with wds.TarWriter(folder / f"{shard}.tar") as out:
            for n in range(shard * COUNT, (shard + 1) * COUNT):
                out.write({"__key__": f"{n:03d}", "cls": n})
    return f"{folder}/{{0..{SHARDS - 1}}}.tar"


def odd_ones(sample):
    return sample["cls"] % 3 != 1 and not 50 < sample["cls"] < 65


def number(sample):
    return sample["cls"]


def in_pairs(source):
    for one in source:
        yield next(source, one)
        yield one


PIPELINES = {
    "batches": lambda d, ranks: d.map_dict(cls=int).batched(8 // ranks),
    "shuffled": lambda d, ranks: d.batched(2).unbatched().shuffle(7).batched(3),
    "selected": lambda d, ranks: d.select(odd_ones).batched(3),
    "samples": lambda d, ranks: d.select(odd_ones).map(number),
    "own": lambda d, ranks: d.compose(in_pairs).map(number),
}
LOADERS = {
    "loader": ("batches", 0, lambda loader: loader),
    "workers": ("selected", 2, lambda loader: loader),
    "stages": ("selected", 2, lambda loader: loader.unbatched().shuffle(5).batched(2)),
}


def make(tars, name, rank, ranks):
    pipeline, workers, add_stages = LOADERS.get(name, (name, None, None))
    dataset = wds.WebDataset(tars, world=World(ranks_per_node=ranks, rank=rank)).shuffle(20)
    dataset = PIPELINES[pipeline](dataset.decode(), ranks)
    if workers is None:
        return dataset
    return add_stages(wds.WebLoader(dataset, batch_size=None, num_workers=workers))


def plain(output):
    if isinstance(output, dict):
        return torch.as_tensor(output["cls"]).tolist()
    return output.tolist() if hasattr(output, "tolist") else output


def read(loop, count=None):
    return [plain(output) for output in islice(loop, count)]


def checkpoints():
    return importlib.import_module("torch.distributed.checkpoint")


def save(rank, ranks, tars, out):
    """Return what each pipeline yields before and after checkpoints, and its states."""
    found, dcp = {}, checkpoints()
    group = torch.distributed.new_group(backend="gloo")  # async_save uses it in a thread
    for name in (*PIPELINES, *LOADERS):
        target = make(tars, name, rank, ranks)
        outputs = iter(target)
        before = read(outputs, DONE)
        dcp.save({"data": target}, checkpoint_id=f"{out}/{name}")
        state, saved = target.state_dict(), {"data": target}
        writing = dcp.async_save(saved, checkpoint_id=f"{out}/{name}-async", process_group=group)
        torch.distributed.barrier()  # as that of a training step
        after = [read(outputs)]
        end = target.state_dict()
        after.append(read(target, 4))
        writing.result()
        found[name] = before, after, [state, end]
    return found


def load(tars, name, rank, ranks, folder):
    target = make(tars, name, rank, ranks)
    checkpoints().load({"data": target}, checkpoint_id=folder)
    return target


def resume(rank, ranks, tars, out):
    found = {}
    for name in (*PIPELINES, *LOADERS):
        found[name] = []
        for folder in (f"{out}/{name}", f"{out}/{name}-async"):
            target = load(tars, name, rank, ranks, folder)
            outputs = iter(target)
            first = read(outputs, 2)
            checkpoints().save({"data": target}, checkpoint_id=f"{folder}-again")
            again = load(tars, name, rank, ranks, f"{folder}-again")
            found[name].append([first + read(again), read(again, 4)])
    return found


def resume_elsewhere(rank, ranks, tars, out):
    """Return the rest of an epoch whose batches are those of the data set; others are refused."""
    for name in ("selected", "own", "stages"):
        with pytest.raises(StateError, match=r"in the middle of their batches, and this is rank"):
            load(tars, name, rank, ranks, f"{out}/{name}")
    return [read(load(tars, name, rank, ranks, f"{out}/{name}")) for name in ("batches", "loader")]


@pytest.mark.parametrize(("ranks", "others"), [(2, (1, 4)), *([(4, (2,))] if SOAK else [])])
def test_checkpoints_resume_on_the_same_and_other_ranks(tars, tmp_path, ranks, others):
    saved = run_ranks(ranks, save, ranks, tars, str(tmp_path))
    for name in (*PIPELINES, *LOADERS):
        states = [of_rank[name][2] for of_rank in saved]
        assert all(state == states[0] for state in states), name
        first = make(tars, name, 0, ranks).state_dict()
        assert all(state.keys() == first.keys() for state in states[0])
        assert json.loads(json.dumps(states[0])) == states[0]
    for of_rank, resumed in zip(saved, run_ranks(ranks, resume, ranks, tars, str(tmp_path))):
        for name, rests in resumed.items():
            assert rests == [of_rank[name][1][:2]] * 2, name
    for number in others:
        rest = run_ranks(number, resume_elsewhere, number, tars, str(tmp_path))
        for at, name in enumerate(("batches", "loader")):
            expected = zip(*(of_rank[name][1][0] for of_rank in saved))
            found = zip(*(of_rank[at] for of_rank in rest))
            batches = [
                [sorted(n for part in step for n in part) for step in steps]
                for steps in (found, expected)
            ]
            assert batches[0] == batches[1]


def test_a_rank_resumes_alone_without_a_process_group(tars):
    targets = [make(tars, "selected", rank, 2) for rank in range(2)]
    for target in targets:
        outputs = iter(target)
        read(outputs, DONE)
        state, expected = target.state_dict(), read(outputs)
        again = make(tars, "selected", targets.index(target), 2)
        again.load_state_dict(state)
        assert read(again) == expected
    with pytest.raises(StateError, match=r"of the ranks \[1\] of 2, .*, and this is rank 0 of 2"):
        targets[0].load_state_dict(state)
