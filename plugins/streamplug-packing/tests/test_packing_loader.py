"""Packs are the same for any workers, and after any state, also in another process and after a kill."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
import time
from collections import Counter
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.states import values

torch = pytest.importorskip("torch")

from streamplug_packing import PackedSamples, PackingDataLoader  # noqa: E402
from streamplug_testing.http import free_port  # noqa: E402
from streamplug_testing.processes import other_process  # noqa: E402

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError, DataError, DecodeError, StateError  # noqa: E402

process = import_module(f"{__name__.rpartition('.')[0]}.packing_process")
digest, make_loader, transform = process.digest, process.make_loader, process.transform
packs_after = process.packs_after
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]
SIZE = 120  # of which 8 are read per step, over all ranks
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
LIMIT = {"length": 64, "size": "tokens", "open_bins": 4}
COPIES = [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=300) as writer:
        writer.write_batch({"n": np.arange(SIZE)})
    return str(out)


@pytest.fixture(scope="module")
def run(folder):
    """Return the digests of the packs of two epochs, the state after each, and the ids of their samples."""
    loader, digests, states, ids = make_loader(folder), [], [], []
    for _ in range(2):
        for pack in loader:
            digests.append(digest(pack))
            states.append(json.loads(json.dumps(loader.state_dict())))
            ids += pack["sample_ids"]
    ids += [sample for pack in loader.flush() for sample in pack["sample_ids"]]
    return digests, states, ids


def test_each_sample_is_packed_once_an_epoch(run):
    digests, _, ids = run
    assert len(digests) > 40
    assert Counter(ids) == dict.fromkeys(range(SIZE), 2)


def test_a_pack_has_its_samples_one_after_the_other(folder):
    for pack in make_loader(folder):
        samples = [transform({"n": number}) for number in pack["sample_ids"]]
        for name in ("tokens", "bf16"):
            expected = torch.cat([sample[name] for sample in samples])
            assert torch.equal(pack[name], expected)
            assert pack[name].dtype == expected.dtype
        assert pack["patches"].tolist() == [row for s in samples for row in s["patches"].tolist()]
        assert pack["n"].tolist() == [sample["n"] for sample in samples]
        assert pack["text"] == [sample["text"] for sample in samples]
        sizes = [len(sample["tokens"]) for sample in samples]
        assert pack["cu_seqlens"].dtype == torch.int32
        assert pack["cu_seqlens"].tolist() == [0, *np.cumsum(sizes).tolist()]
        assert pack["max_seqlen"] == max(sizes)
        assert pack["position_ids"].tolist() == [n for size in sizes for n in range(size)]
        assert sum(sizes) <= 64


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        (1, {"multiprocessing_context": "fork"}),
        (3, {"multiprocessing_context": "fork", "persistent_workers": True}),
        *([(2, {"multiprocessing_context": "spawn"})] if SOAK else []),
        (0, {"device": "cpu"}),
    ],
)
def test_packs_do_not_depend_on_workers(folder, run, workers, more):
    loader = make_loader(folder, num_workers=workers, **more)
    epochs = 1 if more.get("multiprocessing_context") == "spawn" else 2
    found = [digest(pack) for _ in range(epochs) for pack in loader]
    assert found == run[0][: len(found)]
    assert len(found) > 20


@pytest.mark.parametrize("workers", [0, 2])
def test_a_new_process_continues_from_every_state(folder, run, workers):
    digests, states, _ = run
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    with other_process("spawn") as pool:
        for number in range(0, len(states) - 5, 1 if workers == 0 else 16):
            arguments = (folder, states[number], 5)
            found = pool.apply(_in_process, (arguments, options))
            assert found == digests[number + 1 : number + 6]


def _in_process(arguments, options):
    multiprocessing.current_process()._config["daemon"] = (
        False  # a pool's process may not start others
    )
    return packs_after(*arguments, **options)


def test_a_loaded_state_is_the_state_before_anything_is_read(folder, run):
    loader = make_loader(folder)
    loader.load_state_dict(run[1][9])
    assert loader.state_dict() == run[1][9]


def test_a_killed_process_continues(folder, run, tmp_path):
    out = tmp_path / "packs"
    job = {"folder": folder, "out": str(out), "workers": 1, "packs_per_epoch": 23, "loops": 1000}
    for target in (5, 31):
        child = fork(job)
        wait_for(lambda: out.exists() and out.read_bytes().count(b"\n") >= target, child)  # noqa: B023
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    found = [json.loads(line)["digest"] for line in out.read_bytes().split(b"\n")[:-1]]
    loader = make_loader(folder, packs_per_epoch=len(found))
    assert len(found) >= 31
    assert found == [digest(pack) for pack in loader]


def fork(job, **environment):
    """Start `packing_process` as a fork, which has torch already."""
    child = multiprocessing.get_context("fork").Process(target=_pack, args=(job, environment))
    child.start()
    return child


def _pack(job, environment):
    os.environ.update(environment)
    process.main(job)


def wait_for(holds, child):
    for _ in range(1000):
        if holds():
            return
        assert child.is_alive()
        time.sleep(0.03)
    raise AssertionError("the process takes too long")


def test_a_loop_goes_on_where_the_last_one_was_left(folder, run):
    for workers in (0, 2):
        loader = make_loader(folder, num_workers=workers, packs_per_epoch=7)
        found = [digest(pack) for pack in islice(loader, 3)]
        found += [digest(pack) for _ in range(4) for pack in loader]
        assert found == run[0][: 3 + 4 * 7]
    assert len(loader) == 7
    loader = make_loader(folder)
    found = [digest(pack) for pack in islice(loader, 3)]
    found += [digest(pack) for _ in range(2) for pack in loader]
    assert found == run[0]
    with pytest.raises(TypeError, match="packs_per_epoch"):
        len(loader)


def packing_of(state):
    return json.loads(state["packing"])


def with_packing(state, **changes):
    return {**state, "packing": json.dumps({**packing_of(state), **changes})}


def record_of(state, rank=0):
    """Return epoch, step, backlog and bins of a rank."""
    return packing_of(state)["ranks"][str(rank)]


def test_trainers_epochs(folder, run):
    ends = [i for i, s in enumerate(run[1]) if s["epoch"] == 0]
    state = run[1][ends[-1]]
    _, _, _, bins = record_of(state)
    # All steps of the epoch were read.
    state = with_packing(state, ranks={0: [0, SIZE // 8, [], bins]})
    loader = make_loader(folder)
    loader.load_state_dict(state)
    assert list(loader) == []
    assert loader.state_dict()["epoch"] == 1
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert record_of(loader.state_dict()) == [1, 0, [], bins]
    assert next(iter(loader))["sample_ids"]
    assert loader.state_dict()["epoch"] == 1
    loader = make_loader(folder, packs_per_epoch=3)
    loader.set_epoch(5)
    assert digest(next(iter(loader))) == run[0][0]


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_copy_begins_where_its_data_set_is_told_to(folder, duplicate):
    def pack_anew(loader):
        state = loader.dataset.state_dict()
        assert list(loader)
        loader.dataset.load_state_dict(state)
        return [digest(pack) for pack in loader]

    loader = make_loader(folder)
    assert pack_anew(duplicate(loader)) == pack_anew(loader)


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_copy_is_told_the_epoch_by_its_sampler(folder, duplicate):
    loader = make_loader(folder)
    other = duplicate(loader)
    loader.set_epoch(1)
    other.sampler.set_epoch(1)
    assert [digest(pack) for pack in other] == [digest(pack) for pack in loader]
    assert other.state_dict() == loader.state_dict()


def test_an_error_loses_nothing(folder, run):
    def failing(sample):
        if sample["n"] == bad:
            raise ValueError("bad")
        return transform(sample)

    bad = record_of(run[1][12])[3][-1][-1]
    loader = make_loader(folder, transform=failing)
    found = []
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            found.extend(digest(pack) for pack in loader)
    bad = -1
    found += [digest(pack) for _ in range(2) for pack in loader]
    assert found == run[0]


@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
def test_a_stop_iteration_of_a_transform_is_an_error(folder, packer):
    def stop_at_20(sample):
        return next(iter(())) if sample["n"] == 20 else sample

    dataset = StreamingDataset(local=folder, batch_size=8)
    packs = packer(dataset, length=8, size=lambda _: 1, transform=stop_at_20)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(packs)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
def test_the_error_of_a_transform_names_the_sample(folder, packer):
    def fail_at_20(sample):
        if sample["n"] == 20:
            raise KeyError("caption")
        return sample

    dataset = StreamingDataset(local=folder, batch_size=8)
    with pytest.raises(KeyError) as caught:
        list(packer(dataset, length=8, size=lambda _: 1, transform=fail_at_20))
    [note] = caught.value.__notes__
    assert re.fullmatch(r"raised for sample 20 \(.*, row \d+; epoch 0, step 2\)", note)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
def test_errors_of_sizes_and_packs_name_the_samples(folder, packer):
    def fail_at_20(sample):
        if sample["n"] == 20:
            raise KeyError("caption")
        return 1

    def fail_to_collate(samples):
        raise RuntimeError(len(samples))

    dataset = StreamingDataset(local=folder, batch_size=8)
    with pytest.raises(KeyError) as caught:
        list(packer(dataset, length=8, size=fail_at_20))
    [note] = caught.value.__notes__
    assert re.fullmatch(r"raised by size= for sample 20 \(.*, row \d+; epoch 0, step 2\)", note)
    dataset = StreamingDataset(local=folder, batch_size=8)
    with pytest.raises(RuntimeError) as caught:
        list(packer(dataset, length=3, size=lambda _: 1, collate_fn=fail_to_collate))
    assert caught.value.__notes__ == ["raised for a pack of the samples [0, 1, 2]"]


@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
def test_what_is_no_function_and_no_number_is_refused(folder, packer):
    dataset = StreamingDataset(local=folder, batch_size=8)
    with pytest.raises(ConfigError, match=r"collate_fn=3: expected a function of a list"):
        packer(dataset, length=8, size="n", collate_fn=3)
    with pytest.raises(DataError, match=r"sample 0 .* has size True; .* whole number from 1"):
        list(packer(dataset, length=8, size=lambda _: True))


def test_a_sample_that_is_too_long_is_named(folder):
    loader = make_loader(folder, length=20)
    place = r"sample \d+ \(.*one, shard\.\d+\.mds, row \d+; epoch 0, step \d+\)"
    for _ in range(2):
        with pytest.raises(DataError, match=rf"^{place} has size \d\d; packs of length=20"):
            list(loader)


@pytest.mark.parametrize(
    "size", [np.array(2.5), torch.tensor(2.5), np.array([2, 3]), np.array([2])]
)
def test_a_size_that_is_no_whole_number_is_refused(folder, size):
    dataset = StreamingDataset(local=folder, batch_size=8)
    packs = PackedSamples(dataset, length=6, size=lambda _: size)
    with pytest.raises(DataError, match=r"sample 0 .* has size .*of a whole number from 1 to that"):
        next(iter(packs))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"drop_last": True}, "drop_last=True"),
        ({"batch_transform": dict}, "batch_transform= is for batches"),
        pytest.param(
            {"pin_memory": True},
            "pin_memory=True: torch finds no CUDA",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
        ({"num_threads": 2}, "num_threads= is for batches"),
        ({"num_workers": "auto"}, "may choose threads"),
        ({"lenght": 2}, "lenght.*Did you mean 'length'"),
        ({"batch_size": 3}, "batch_size=3 differs"),
    ],
)
def test_arguments_without_a_meaning_are_refused(folder, wrong, error):
    with pytest.raises(ConfigError, match=error):
        make_loader(folder, **wrong)


def test_packs_have_no_headspace(folder):
    with pytest.raises(ConfigError, match="packs depend on the samples before them"):
        make_loader(folder).headspace()


def test_data_sets_that_iterate_otherwise_are_refused(folder):
    class Twice(StreamingDataset):
        def __iter__(self):
            for sample in super().__iter__():
                yield from (sample, sample)

    for make in (PackingDataLoader, PackedSamples):
        with pytest.raises(ConfigError, match="Twice has an __iter__ of its own"):
            make(Twice(local=folder, batch_size=8), **LIMIT)
    with pytest.raises(ConfigError, match="not 3"):
        PackedSamples(3, **LIMIT)


@pytest.mark.parametrize(
    ("sample", "error"),
    [
        ([1, 2], "not 'list'"),
        ({"tokens": [1], "position_ids": 0}, "column 'position_ids': a pack has"),
    ],
)
def test_samples_that_make_no_dict_are_refused(folder, sample, error):
    loader = make_loader(folder, transform=lambda _: sample, size=len)
    with pytest.raises(ConfigError, match=re.escape(error)):
        list(loader)


def test_arrays_of_other_shapes_are_refused(folder):
    def shapes(sample):
        return {"tokens": np.zeros((10, 1 + sample["n"] % 3))}

    with pytest.raises(ConfigError, match=r"^column 'tokens': these arrays cannot be concatenated"):
        list(make_loader(folder, transform=shapes))


def test_packs_are_collated_by_the_user(folder, run):
    loader = make_loader(folder, collate_fn=lambda samples: [int(s["n"]) for s in samples])
    assert sorted(n for pack in [*loader, *loader.flush()] for n in pack) == list(range(SIZE))


def test_a_config_makes_a_loader(folder, run, tmp_path):
    path = tmp_path / "train.toml"
    path.write_text(
        f'[dataset]\nlocal = "{folder}"\nshuffle = true\nnum_canonical_nodes = 2\nbatch_size = 8\n'
        '[loader]\nlength = 64\nsize = "tokens"\nopen_bins = 4\npacks_per_epoch = 3\n'
    )
    loader = PackingDataLoader.from_config(path, transform=transform)
    assert [digest(pack) for pack in loader] == run[0][:3]
    loader = StreamingDataLoader.from_config(path, transform=transform)
    assert type(loader) is PackingDataLoader
    assert [digest(pack) for pack in loader] == run[0][:3]


def unyielded(state):
    _, _, backlog, bins = record_of(state)
    return [
        sample
        for places in [backlog, *(numbers for _, *numbers in bins)]
        for sample in places[2::3]
    ]


def one_ahead(packs):
    """Prepare packs one ahead of use, as for a CUDA device."""
    packs = iter(packs)
    previous = next(packs, None)
    while previous is not None:
        following = next(packs, None)
        yield previous
        previous = following


def test_a_pack_that_was_prepared_ahead_of_use_is_not_lost(folder, run):
    digests, states, _ = run
    loader = make_loader(folder, packs_per_epoch=3)
    loader.set_stream(loader._stream, one_ahead)
    found = [digest(pack) for pack in loader]
    assert loader.state_dict() == states[2]
    loop = iter(loader)
    found.append(digest(next(loop)))
    loop.close()
    found += [digest(pack) for pack in loader]
    assert found == digests[:7]
    assert loader.state_dict() == states[6]
    flushed = next(iter(loader.flush()))["sample_ids"]
    assert sorted(flushed + unyielded(loader.state_dict())) == sorted(unyielded(states[6]))
    assert not set(next(iter(loader))["sample_ids"]) & set(flushed)


# -- without torch's loader -----------------------------------------------------


def arrays(sample):
    return {"tokens": np.asarray(transform(sample)["tokens"]), "n": sample["n"]}


def test_packs_without_a_loader_are_the_same(folder):
    def make():
        dataset = StreamingDataset(
            local=folder, shuffle=True, batch_size=8, num_canonical_nodes=2, world=World()
        )
        return PackedSamples(dataset, transform=arrays, **LIMIT)

    packs = make()
    found = [(p["sample_ids"], p["tokens"].tolist(), packs.state_dict()) for p in packs]
    expected = list(make_loader(folder))
    assert [pack[:2] for pack in found] == [
        (pack["sample_ids"], pack["tokens"].tolist()) for pack in expected
    ]
    again = make()
    again.load_state_dict(found[4][2])
    assert [pack["sample_ids"] for pack in again] == [pack[0] for pack in found[5:]]


# -- states -------------------------------------------------------------------


class Tenfold(StreamingDataset):
    """Data set that changes samples one by one."""

    def __getitem__(self, at):
        return {"n": 10 * super().__getitem__(at)["n"]}


@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
@pytest.mark.parametrize("on_error", ["raise", "substitute"])
def test_packs_of_samples_that_a_subclass_changes_are_resumed(folder, packer, on_error):
    def make():
        dataset = Tenfold(local=folder, batch_size=8, shuffle=True, on_error=on_error)
        return packer(dataset, length=64, size=lambda sample: 1 + sample["n"] % 30, open_bins=4)

    packs = iter(whole := make())
    before = [next(packs) for _ in range(5)]
    assert all(n % 10 == 0 for pack in before for n in pack["n"])
    state = json.loads(json.dumps(whole.state_dict()))
    resumed = make()
    resumed.load_state_dict(state)
    expected, actual = next(packs), next(iter(resumed))
    assert np.asarray(actual["n"]).tolist() == np.asarray(expected["n"]).tolist()


def refuse_some(sample):
    if sample["n"] in (7, 30):
        raise DecodeError(f"{sample['n']} is damaged")
    if sample["n"] == 99:
        raise KeyError("mine")
    return sample


@pytest.mark.parametrize("packer", [PackedSamples, PackingDataLoader])
def test_samples_that_a_transform_cannot_decode_are_substituted(folder, packer):
    limits = {"length": 64, "size": lambda sample: 1 + sample["n"] % 30, "open_bins": 4}

    def make(**options):
        dataset = StreamingDataset(local=folder, batch_size=8, **options)
        return dataset, packer(dataset, transform=refuse_some, **limits)

    with pytest.raises(DecodeError, match="7 is damaged"):
        list(make()[1])
    dataset, loader = make(on_error="substitute")
    packs = iter(loader)
    numbers = [n for pack in islice(packs, 20) for n in np.asarray(pack["n"]).tolist()]
    assert not {7, 30} & set(numbers)
    assert dataset.stats().substitutions == 2
    _, resumed = make(on_error="substitute")
    resumed.load_state_dict(loader.state_dict())  # reads the samples of open bins again
    expected, actual = next(packs), next(iter(resumed))
    assert np.asarray(actual["n"]).tolist() == np.asarray(expected["n"]).tolist()
    with pytest.raises(KeyError):
        list(packs)


def test_packing_may_begin_after_a_state_of_batches(folder):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8, num_canonical_nodes=2)
    batches = StreamingDataLoader(dataset)
    next(iter(batches))
    loader = make_loader(folder)
    loader.load_state_dict(batches.state_dict())
    read = Counter(n for pack in [*loader, *loader.flush()] for n in pack["sample_ids"])
    assert sum(read.values()) == SIZE - 8 == len(read)


def old_states(case):
    """Return states of version 1 in loops of 14 packs, and the packs before and after them, by rank."""
    saved = json.loads(Path(__file__).with_name("states_of_version_1.json").read_text())[case]
    return saved["states"], saved["before"], saved["after"]


@pytest.mark.parametrize("case", ["1 ranks, 1 packs", "1 ranks, 10 packs", "2 ranks, 9 packs"])
def test_states_of_version_1_are_loaded(folder, case):
    states, before, after = old_states(case)
    for rank, state in enumerate(states):
        loader = rank_loader(folder, 1, len(states), rank, packs_per_epoch=14)
        loader.load_state_dict(state)
        packs = [pack["sample_ids"] for pack in loader]
        assert packs[:4] == after[rank]
        assert len(packs) == 14 - len(before[rank])
    alone = make_loader(folder)
    alone.load_state_dict(states)
    ids = [n for packs in before for pack in packs for n in pack]
    ids += [n for pack in [*alone, *alone.flush()] for n in pack["sample_ids"]]
    assert Counter(ids) == dict.fromkeys(range(SIZE), 1)


def test_a_loop_after_a_state_without_a_number_of_packs_is_whole(folder):
    [state], _, _ = old_states("1 ranks, 10 packs")
    del state["packing"]["packs"]
    loader = make_loader(folder, packs_per_epoch=14)
    loader.load_state_dict(state)
    assert len(list(loader)) == 14


def test_a_state_has_fixed_keys_with_integers_and_texts(folder, run):
    first = make_loader(folder).state_dict()
    assert all(state.keys() == first.keys() for state in run[1])
    assert {type(first[name]) for name in ("epoch", "sample_in_epoch", "packs", "packing")} == {
        int,
        str,
    }


@pytest.mark.parametrize("left", [0, 3])
def test_a_loop_after_a_state_yields_the_rest_of_its_packs(folder, run, left):
    loader = make_loader(folder, packs_per_epoch=7)
    for number, _ in enumerate(loader):
        state = json.loads(json.dumps(loader.state_dict()))
        if number == 6 - left:
            break
    resumed = make_loader(folder, packs_per_epoch=7)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    loops = [[digest(pack) for pack in resumed] for _ in range(3)]
    assert [len(loop) for loop in loops] == [left, 7, 7]
    assert [pack for loop in loops for pack in loop] == run[0][7 - left : 21]
    assert resumed.state_dict()["packs"] == 0


@pytest.mark.parametrize("loads", [StreamingDataset.load_state_dict])
def test_a_data_set_refuses_a_state_of_packs(folder, run, loads):
    with pytest.raises(StateError, match="the state is of packs"):
        loads(StreamingDataset(local=folder, shuffle=True, batch_size=8), run[1][0])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"length": 63}, "length: 63 in the state, 64 here"),
        ({"version": 3}, "version: 3 in the state"),
        ({"ranks": {1: [0, 1, [], []]}}, r"rank=1"),
        ({"nodes": None}, "nodes=None"),
        ({"nodes": 10**15}, f"1 states, of the ranks .* of {10**15} on {10**15} nodes"),
        ({"ranks": 3}, "no text of states of packs"),
        ({"ranks": {"x": []}}, "no text of states of packs"),
        ({"ranks": {0: 3}}, "has 3 where a list of 4 is expected"),
        ({"ranks": {0: [0, 1, [], 3]}}, "has 3 where a list is expected"),
        ({"ranks": {0: [0, 1, [], [[1]]]}}, "a bin without samples"),
        ({"ranks": {0: [0, 1, [], [[]]]}}, "the age of a bin=None"),
        ({"ranks": {0: [0, 1, [0, 0], []]}}, "where 3 numbers of each sample are expected"),
        ({"ranks": {0: [0, 1, [0, 0, -1], []]}}, "expected a whole number"),
        ({"ranks": {0: [0, 1, [0, 0, SIZE], []]}}, f"has sample {SIZE}"),
        ({"ranks": {0: [-1, 1, [], []]}}, "the epoch=-1"),
        ({"ranks": {0: [0, None, [], []]}}, "the step=None"),
    ],
)
def test_damaged_packings_are_refused(folder, run, changes, error):
    refuse(folder, run, with_packing(run[1][9], **changes), error)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"packing": 3}, "a state is what state_dict"),
        ({"packing": "{"}, "no text of states of packs"),
        ({"packing": "[]"}, "no text of states of packs"),
        ({"packs": -1}, "has packs=-1; expected a whole number"),
        ({"shuffle_seed": 1}, "shuffle_seed"),
        ({"epoch": [1]}, "epoch="),
        ({"sample_in_epoch": None}, "sample_in_epoch=None"),
    ],
)
def test_damaged_states_are_refused(folder, run, changes, error):
    refuse(folder, run, {**run[1][9], **changes}, error)


@pytest.mark.parametrize(
    ("keys", "value", "error"),
    [
        (["packing", "rank"], 1, r"rank=1"),
        (["packing", "bins"], 3, "has 3 where a list is expected"),
        (["packing", "bins"], [[1]], "where a list of 2 is expected"),
        (["packing", "backlog"], [[0, 0]], "where a list of 3 is expected"),
        (["packing", "backlog"], [[0, 0, SIZE]], f"has sample {SIZE}"),
        (["packing"], 3, "a state is what state_dict"),
        (["order", "shuffle_seed"], 1, "shuffle_seed"),
        (["order", "global_batch"], 0, "no position"),
        (["order", "epoch"], [1], "no position"),
        (["order", "epoch"], -1, "no position"),
        (["order", "sample_in_epoch"], None, "no position"),
    ],
)
def test_damaged_states_of_version_1_are_refused(folder, run, keys, value, error):
    [state], _, _ = old_states("1 ranks, 10 packs")
    part = state
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    refuse(folder, run, state, error)


def refuse(folder, run, state, error):
    loader = make_loader(folder)
    with pytest.raises(StateError, match=error):
        loader.load_state_dict(state)
    assert digest(next(iter(loader))) == run[0][0]


def test_samples_that_changed_are_refused(folder, run):
    epoch, step, backlog, bins = record_of(run[1][9])
    bins[0][1:] *= 9
    loader = make_loader(folder)
    loader.load_state_dict(with_packing(run[1][9], ranks={0: [epoch, step, backlog, bins]}))
    with pytest.raises(StateError, match="of a bin have a size of"):
        next(iter(loader))


def rank_loader(folder, nodes, ranks_per_node, rank, **more):
    world = World(nodes, ranks_per_node, rank=rank)
    return make_loader(folder, world=world, **more)


@pytest.mark.parametrize(
    ("before", "after"), [((1, 2), (1, 1)), ((1, 1), (2, 2)), ((2, 2), (1, 2))]
)
def test_samples_are_handed_over_to_other_ranks(folder, before, after):
    ranks = [rank_loader(folder, *before, r, packs_per_epoch=11) for r in range(np.prod(before))]
    ids = [n for loader in ranks for pack in loader for n in pack["sample_ids"]]
    states = json.loads(json.dumps([loader.state_dict() for loader in ranks]))
    ranks = [rank_loader(folder, *after, r) for r in range(np.prod(after))]
    for loader in ranks:
        loader.load_state_dict(states[::-1])
        ids += [n for pack in [*loader, *loader.flush()] for n in pack["sample_ids"]]
    epochs = max(state["epoch"] for state in states) + 1
    assert Counter(ids) == dict.fromkeys(range(SIZE), epochs)
    with pytest.raises(StateError, match=r"this is rank 0 of .*: load its own state, or a list"):
        ranks[0].load_state_dict(
            states[0] if len(states) > 1 else with_packing(states[0], ranks_per_node=8)
        )


def test_ranks_on_both_sides_of_a_planned_change_hand_over(folder):
    def make_rank(rank, ranks, **options):
        dataset = StreamingDataset(
            streams=[Stream(local=folder)],
            curriculum={0: [1], 8: [1]},
            epoch_size=SIZE,
            batch_size=8 // ranks,
            shuffle=True,
            world=World(1, ranks, rank=rank),
        )
        return PackingDataLoader(dataset, transform=transform, **LIMIT, **options)

    ranks = [make_rank(rank, 2, packs_per_epoch=5) for rank in range(2)]
    ids = [n for packed in ranks for pack in packed for n in pack["sample_ids"]]
    states = json.loads(json.dumps([packed.state_dict() for packed in ranks]))
    assert [len(values(state)["segments"]) for state in states] == [1, 2]
    other = make_rank(0, 1)
    other.load_state_dict(states)
    ids += [n for part in (other, other.flush()) for pack in part for n in pack["sample_ids"]]
    assert Counter(ids) == dict.fromkeys(range(SIZE), 1)


def test_ranks_that_read_the_same_samples_hand_over_one_state(folder):
    def make_rank(rank, ranks, **options):
        dataset = StreamingDataset(
            local=folder,
            batch_size=16 // ranks,
            shuffle=True,
            world=World(1, ranks, rank=rank),
            replication=2,
        )
        return PackingDataLoader(dataset, transform=transform, **LIMIT, **options)

    ranks, ids = [make_rank(rank, 4, packs_per_epoch=9) for rank in range(4)], []
    for rank, packed in enumerate(ranks):
        for pack in packed:
            ids += pack["sample_ids"] if rank % 2 == 0 else []
    states = [packed.state_dict() for packed in ranks]
    assert states[0] == states[1] != states[2] == states[3]
    epochs = max(state["epoch"] for state in states) + 1
    for rank in range(2):
        other = make_rank(rank, 2)
        other.load_state_dict(states)
        rest = [n for packs in (other, other.flush()) for pack in packs for n in pack["sample_ids"]]
        assert Counter([*ids, *rest]) == dict.fromkeys(range(SIZE), epochs)
    next(iter(ranks[1]))
    with pytest.raises(StateError, match="two states of rank 0 of 2 that differ"):
        make_rank(0, 2).load_state_dict([ranks[1].state_dict(), *states[1:]])


def test_a_list_of_all_states_has_the_own_one(folder, monkeypatch):
    ranks = [rank_loader(folder, 1, 2, r, packs_per_epoch=9) for r in range(2)]
    for loader in ranks:
        list(loader)
    states = [loader.state_dict() for loader in ranks]
    again = rank_loader(folder, 1, 2, 1, packs_per_epoch=9)
    again.load_state_dict(states)
    assert [digest(pack) for pack in again] == [digest(pack) for pack in ranks[1]]
    for loader in ranks:
        next(iter(loader))
    alone = rank_loader(folder, 1, 1, 0, packs_per_epoch=9)
    alone.load_state_dict([loader.state_dict() for loader in ranks])
    assert [len(list(alone)) for _ in range(2)] == [8, 9]
    alone = rank_loader(folder, 1, 1, 0)
    with pytest.raises(StateError, match="of another run: shuffle_seed"):
        alone.load_state_dict([{**states[0], "shuffle_seed": 3}, states[1]])

    def in_epoch(epoch):
        _, *rest = record_of(states[0])
        return [{**with_packing(states[0], ranks={0: [epoch, *rest]}), "epoch": epoch}, states[1]]

    with pytest.raises(StateError, match="more than 1000 epochs apart"):
        alone.load_state_dict(in_epoch(10**12))
    monkeypatch.setattr("streamplug_packing.handover._MAX_UNREAD_SAMPLES", 999 * SIZE // 2)
    monkeypatch.setattr("streamplug_packing.handover._places_of", None)
    with pytest.raises(StateError, match="are up to 1000 epochs apart: 59996 samples"):
        alone.load_state_dict(in_epoch(states[1]["epoch"] + 1000))
    new = rank_loader(folder, 1, 1, 0)  # the error leaves the position as it was
    assert [digest(pack) for pack in alone] == [digest(pack) for pack in new]


def test_proportions_that_changed_at_different_steps_of_ranks_are_refused(folder):
    def make_rank(rank, ranks):
        dataset = StreamingDataset(
            streams=[Stream(local=folder)],
            curriculum={0: [1]},
            epoch_size=SIZE,
            batch_size=8 // ranks,
            shuffle=True,
            world=World(1, ranks, rank=rank),
        )
        return PackingDataLoader(dataset, transform=transform, **LIMIT, packs_per_epoch=20)

    ranks = [make_rank(rank, 2) for rank in range(2)]
    for number, packed in enumerate(ranks):
        packed.dataset.load_state_dict(packed.dataset.session.state_at(0, 2 + 3 * number))
        packed.dataset.set_proportions([1])
        next(iter(packed))
    with pytest.raises(StateError, match="load the same state of the data set on all ranks"):
        make_rank(0, 1).load_state_dict([packed.state_dict() for packed in ranks])


def test_ranks_stay_in_step(folder, tmp_path):
    port = free_port()
    job = {"folder": folder, "workers": 0, "packs_per_epoch": 17, "loops": 3}
    job["out"] = f"{tmp_path}/{{rank}}"
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    children = [fork(job, **environment, RANK=str(rank)) for rank in range(2)]
    try:
        for child in children:
            child.join(240)
        assert [child.exitcode for child in children] == [0, 0]
    finally:
        for child in children:
            child.kill()
            child.join()
    lines = [
        [json.loads(line) for line in (tmp_path / f"{rank}").read_text().splitlines()]
        for rank in range(2)
    ]
    assert [len(of_rank) for of_rank in lines] == [51, 51]
    read = [of_rank[-1]["state"] for of_rank in lines]
    assert read[0] == read[1]
    assert read[0]["epoch"] > 0
    # After every pack, what both ranks yielded and hold is each sample once an epoch.
    for last in (10, 50):
        state = lines[0][last]["state"]
        alone = make_loader(folder)
        alone.load_state_dict(state)
        ids = [n for of_rank in lines for row in of_rank[: last + 1] for n in row["ids"]]
        ids += [n for pack in [*alone, *alone.flush()] for n in pack["sample_ids"]]
        epochs = state["epoch"] + 1
        assert Counter(ids) == dict.fromkeys(range(SIZE), epochs)


def add_noise(sample, rng):
    tokens = np.full(1 + sample["n"] % 9, sample["n"])
    return {"n": sample["n"], "tokens": tokens, "noise": rng.random(len(tokens))}


def add_torch_noise(sample):
    tokens = np.full(1 + sample["n"] % 9, sample["n"])
    return {"tokens": tokens, "noise": torch.rand(len(tokens), dtype=torch.float64)}


def noisy_loader(folder, add=add_noise, **options):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8)
    return PackingDataLoader(dataset, **LIMIT, transform=add, **options)


@pytest.mark.parametrize(
    ("add", "options"), [(add_noise, {}), (add_torch_noise, {"seed_torch": True})]
)
def test_random_numbers_of_packs_are_those_of_samples(folder, add, options):
    expected = [pack["noise"].tolist() for pack in noisy_loader(folder, add, **options)]
    loader = noisy_loader(folder, add, num_workers=2, **options)
    packs = iter(loader)
    found = [next(packs)["noise"].tolist() for _ in range(3)]
    state = loader.state_dict()
    del packs
    resumed = noisy_loader(folder, add, **options)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert found + [pack["noise"].tolist() for pack in resumed] == expected


def test_random_numbers_of_packs_need_no_torch(folder):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8)
    packed = PackedSamples(dataset, **LIMIT, transform=add_noise)
    expected = [pack["noise"].tolist() for pack in noisy_loader(folder)]
    assert [pack["noise"].tolist() for pack in packed] == expected


def test_batches_of_varying_size_are_refused(folder):
    budget = {"limit": 9, "measure": "value", "column": "n", "max_length": 9}
    dataset = StreamingDataset(local=folder, batching_method="budget", batch_budget=budget)
    with pytest.raises(ConfigError, match="batching_method='budget' makes batches of varying size"):
        PackedSamples(dataset, **LIMIT)


def test_packs_are_handed_over_by_states_only(folder):
    with pytest.raises(ConfigError, match=r"save the state_dict\(\) of all ranks"):
        make_loader(folder).resize(World())


def test_a_data_set_that_is_resized_below_packs_is_refused(folder):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8)
    packs = iter(PackedSamples(dataset, **LIMIT, transform=add_noise))
    next(packs)
    dataset.resize(World())
    with pytest.raises(ConfigError, match="load the list of the states of all ranks"):
        list(packs)


def test_a_data_set_that_is_resized_between_loops_with_open_bins_is_refused(folder):
    worlds = [World(ranks_per_node=2, rank=rank) for rank in range(2)]
    ranks = [StreamingDataset(local=folder, batch_size=4, world=world) for world in worlds]
    packs = [PackedSamples(dataset, **LIMIT, transform=add_noise) for dataset in ranks]
    read = [n for of_rank in packs for pack in of_rank for n in pack["sample_ids"]]
    ranks[0].resize(World())
    states = [of_rank.state_dict() for of_rank in packs]
    for _ in range(2):
        with pytest.raises(ConfigError, match="load the list of the states of all ranks"):
            next(iter(packs[0]))
    packs[0].load_state_dict(states)
    read += [n for pack in packs[0].flush() for n in pack["sample_ids"]]
    assert sorted(read) == list(range(SIZE))


def test_states_of_several_worlds_are_refused(folder):
    worlds = [World(ranks_per_node=2, rank=rank) for rank in range(2)]
    ranks = [StreamingDataset(local=folder, batch_size=4, world=world) for world in worlds]
    packs = [PackedSamples(dataset, **LIMIT, transform=add_noise) for dataset in ranks]
    _ = [*packs[0], *packs[0].flush(), *packs[1]]  # only the other rank has open bins
    ranks[0].resize(World())
    states = [of_rank.state_dict() for of_rank in packs]
    with pytest.raises(StateError, match=r"of several worlds.*save the states of all ranks before"):
        packs[0].load_state_dict(states)
    packs[0].load_state_dict(states[0])


def test_a_data_set_may_be_resized_without_open_bins(folder):
    world = World(ranks_per_node=2)
    dataset = StreamingDataset(local=folder, batch_size=4, world=world)
    packs = PackedSamples(dataset, **LIMIT, transform=add_noise)
    _ = [*packs, *packs.flush()]
    dataset.resize(World())
    read = [n for pack in [*packs, *packs.flush()] for n in pack["sample_ids"]]
    assert sorted(read) == list(range(SIZE))


def test_lengths_of_numpy_types_are_saved(folder):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8)
    json.dumps(PackedSamples(dataset, length=np.int64(64), size="tokens").state_dict())


def test_a_loader_of_its_attributes_makes_the_same_packs(folder, run):
    loader = make_loader(folder)
    names = ("length", "size", "open_bins", "max_samples", "packs_per_epoch", "transform")
    more = ("collate_fn", "num_workers", "pin_memory", "seed_torch")
    arguments = {name: getattr(loader, name) for name in (*names, *more)}
    again = PackingDataLoader(loader.dataset, **arguments)
    packs = [digest(pack) for pack in again]
    assert packs == run[0][: len(packs)]
    assert len(packs) > 20


def test_a_loader_of_torch_makes_no_packs(folder):
    loader = make_loader(folder)
    other = torch.utils.data.DataLoader(
        loader.dataset, batch_size=loader.batch_size, collate_fn=loader.collate_fn
    )
    with pytest.raises(ConfigError, match=r"cannot make packs.*load_state_dict"):
        next(iter(other))
