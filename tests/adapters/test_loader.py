"""What StreamingDataLoader does beyond torch's own: whole batches, transforms, devices."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, default_collate, get_worker_info  # noqa: E402, TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.adapters import torch_batches  # noqa: E402
from streamplug.adapters.shared_memory import SharedArrays  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from tests.start_methods import EVERY_METHOD  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, BATCH = 96, 8
WIDE = 4096  # int16: a batch is worth an arena


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {
        "id": "int",
        "wide": f"ndarray:int16:{WIDE}",
        "vector": "ndarray:float32",
        "text": "str",
        "tree": "json",
        "flag": "uint8",
    }
    with MDSWriter(columns=columns, out=out, size_limit=60_000) as writer:
        for number in range(SIZE):
            writer.write(
                {
                    "id": number,
                    "wide": np.full(WIDE, number, np.int16),
                    "vector": np.full(3, number, np.float32),
                    "text": f"text {number}",
                    "tree": {"n": number},
                    "flag": number % 2,
                }
            )
    return str(out)


def make(folder: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(**{"local": folder, "shuffle": True, "batch_size": BATCH, **kwargs})


def check(batch: dict[str, Any]) -> list[int]:
    ids = batch["id"].tolist()
    assert batch["wide"].shape == (len(ids), WIDE)
    assert (batch["wide"] == batch["id"][:, None]).all()
    assert batch["vector"].tolist() == [[float(n)] * 3 for n in ids]
    assert batch["text"] == [f"text {n}" for n in ids]
    assert batch["tree"]["n"].tolist() == ids
    assert batch["flag"].tolist() == [n % 2 for n in ids]
    assert (batch["wide"].dtype, batch["flag"].dtype) == (torch.int16, torch.uint8)
    return ids


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def soon(holds: Callable[[], bool]) -> bool:
    """Say whether something comes to hold: queues of workers are closed by threads of their own."""
    for _ in range(100):
        gc.collect()
        if holds():
            return True
        time.sleep(0.1)
    return False


def shared() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if f"_{os.getpid()}_" in path.name}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_torch(folder, workers):
    ours = StreamingDataLoader(make(folder), num_workers=workers)
    theirs = DataLoader(make(folder), batch_size=BATCH, num_workers=workers)
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine) == list(other)
        assert check(mine) == other["id"].tolist()
        assert {key: getattr(v, "dtype", type(v)) for key, v in mine.items()} == {
            key: getattr(v, "dtype", type(v)) for key, v in other.items()
        }


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_workers_hand_over_large_arrays_without_copying_them(folder, method, monkeypatch):
    seen, unpack = [], torch_batches.unpack_arrays
    monkeypatch.setattr(
        torch_batches, "unpack_arrays", lambda packed: seen.append(packed) or unpack(packed)
    )
    loader = StreamingDataLoader(make(folder), num_workers=2, multiprocessing_context=method)
    assert sorted(n for batch in loader for n in check(batch)) == list(range(SIZE))
    assert len(seen) == SIZE // BATCH
    assert {name for packed in seen for name, *_ in packed.fields} >= {"id", "wide", "vector"}


def test_workers_without_shared_memory_hand_over_tensors(folder, monkeypatch):
    monkeypatch.setattr(SharedArrays, "possible", lambda: False)
    loader = StreamingDataLoader(make(folder), num_workers=2)
    assert sorted(n for batch in loader for n in check(batch)) == list(range(SIZE))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_another_class_of_dict_has_tensors_too(folder, workers):
    loader = StreamingDataLoader(
        make(folder), num_workers=workers, batch_transform=OrderedDict[str, Any]
    )
    for batch in loader:
        assert type(batch) is OrderedDict
        assert isinstance(batch["id"], torch.Tensor)
        assert (batch["wide"] == batch["id"][:, None]).all()


def test_batches_may_be_kept(folder):
    kept = list(StreamingDataLoader(make(folder), num_workers=2))
    assert sorted(n for batch in kept for n in check(batch)) == list(range(SIZE))


def test_batches_may_be_written_to(folder):
    for batch in StreamingDataLoader(make(folder), num_workers=1):
        check(batch)
        batch["wide"] += 1
        assert (batch["wide"] == batch["id"][:, None] + 1).all()


def test_epochs_leave_no_descriptors_and_no_shared_memory(folder):
    def epoch(**kwargs: Any) -> None:
        for batch in StreamingDataLoader(make(folder), num_workers=2, **kwargs):
            check(batch)

    epoch()
    before, names = descriptors(), shared()
    for _ in range(5):
        epoch()
    epoch(persistent_workers=True)
    assert soon(lambda: descriptors() <= before)
    assert shared() <= names


def test_a_worker_that_is_killed_ends_the_loop(folder):
    loader = StreamingDataLoader(make(folder), num_workers=1, persistent_workers=True, timeout=60)
    batches = iter(loader)
    check(next(batches))
    iterator = loader._iterator
    (worker,) = iterator._workers

    def kill() -> None:
        os.kill(worker.pid, signal.SIGKILL)
        # Until it is gone: torch, which is told by a signal, says so here rather than somewhere later.
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        list(batches)

    try:
        # torch sees that it is gone, or that a tensor of a column of dicts cannot be had from it any more.
        with pytest.raises(
            (RuntimeError, OSError), match=r"killed|exited unexpectedly|[Cc]onnection|file"
        ):
            kill()
    finally:
        # Or else torch says so once more when any other child ends, wherever this process is then.
        iterator._shutdown_workers()
    assert not shared()


def test_a_loop_after_an_interrupt_has_new_persistent_workers(folder):
    loader = StreamingDataLoader(make(folder), num_workers=1, persistent_workers=True)
    batches = iter(loader)
    check(next(batches))
    (worker,) = loader._iterator._workers
    os.kill(worker.pid, signal.SIGINT)  # as Ctrl-C sends it to all processes of a terminal
    worker.join(60)
    del batches
    assert sorted(n for batch in loader for n in check(batch)) == list(range(SIZE))


def test_workers_end_at_once_after_an_error(folder):
    before = set(multiprocessing.active_children())

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"sample {sample['id']}")

    def loop() -> None:
        list(StreamingDataLoader(make(folder), num_workers=2, transform=transform))

    gc.disable()  # which would end them later
    try:
        with pytest.raises(ValueError, match="sample"):
            loop()
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


@pytest.mark.parametrize("failed", [60, 61])
def test_an_error_of_a_worker_is_raised_in_the_turn_of_its_batch(tmp_path, failed):
    """Though the other worker, which is slow, has sent far fewer batches by then."""
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as writer:
        writer.write_batch({"n": range(80)})

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["n"] == failed:
            raise ValueError("bad")
        if sample["n"] % 2 != failed % 2:
            time.sleep(0.006)
        return sample

    found: list[int] = []
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    loader = StreamingDataLoader(dataset, num_workers=2, transform=transform)
    with pytest.raises(ValueError, match="bad"):
        found.extend(int(batch["n"]) for batch in loader)
    assert found == list(range(failed))
    assert loader.state_dict()["sample_in_epoch"] == failed


def slow(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.05)
    return sample


def test_workers_end_at_once_after_an_interrupt_that_is_kept(folder):
    before = set(multiprocessing.active_children())

    def loop() -> None:
        for _ in StreamingDataLoader(make(folder), num_workers=2, transform=slow):
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # in the middle of the wait for a batch

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) as interrupted:
            loop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert set(multiprocessing.active_children()) <= before, interrupted  # as a notebook keeps it


def test_a_loop_after_an_interrupt_of_the_start_of_a_loop_reads_all(folder):
    loader = StreamingDataLoader(
        make(folder), num_workers=2, persistent_workers=True, transform=slow
    )
    for _ in loader:
        break

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # while the workers end the loop before
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert sorted(n for batch in loader for n in batch["id"].tolist()) == list(range(SIZE))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loop_in_a_reference_cycle_end_at_once(folder, persistent):
    before = set(multiprocessing.active_children())
    loader = StreamingDataLoader(make(folder), num_workers=2, persistent_workers=persistent)
    cycle: list[Any] = [loader, iter(loader)]
    cycle.append(cycle)
    next(cycle[1])
    del loader, cycle
    began = time.monotonic()
    gc.collect()
    assert time.monotonic() - began < 4  # torch waits 5 s for a worker that it cannot tell to end
    assert set(multiprocessing.active_children()) <= before


# -- transforms -----------------------------------------------------------------------


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"twice": sample["wide"] * 2, "id": sample["id"]}


def doubled_batch(columns: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(columns["wide"], np.ndarray)
    return {"twice": torch.from_numpy(columns["wide"] * 2), "id": columns["id"]}


def pairs(columns: dict[str, Any]) -> Any:
    return torch.from_numpy(columns["wide"]), columns["text"]


def listed(samples: list[Any]) -> list[int]:
    return [sample["id"] for sample in samples]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", [{"transform": doubled}, {"batch_transform": doubled_batch}])
def test_samples_or_batches_are_transformed(folder, workers, how):
    loader = StreamingDataLoader(make(folder), num_workers=workers, **how)
    ids = []
    for batch in loader:
        assert (batch["twice"] == 2 * batch["id"][:, None]).all()
        assert isinstance(batch["id"], torch.Tensor)
        ids += batch["id"].tolist()
    assert ids == [n for batch in make(folder).batches() for n in batch["id"].tolist()]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_may_be_anything(folder, workers):
    for wide, text in StreamingDataLoader(make(folder), num_workers=workers, batch_transform=pairs):
        assert [f"text {n}" for n in wide[:, 0].tolist()] == text


class Record(dict):  # type: ignore[type-arg]
    """A dict whose keys are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def record(columns):
    return Record(id=columns["id"], parts=[torch.as_tensor(columns["wide"])])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_a_class_of_dicts_keeps_it(folder, workers):
    it = StreamingDataLoader(
        make(folder), num_workers=workers, batch_transform=record, device="meta"
    )
    batch = next(iter(it))
    assert type(batch) is Record
    assert batch.id.device.type == batch.parts[0].device.type == "meta"


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_are_collated_by_the_user(folder, workers):
    it = StreamingDataLoader(make(folder), num_workers=workers, collate_fn=listed)
    assert list(it) == [b["id"].tolist() for b in make(folder).batches()]
    it = StreamingDataLoader(
        make(folder), num_workers=workers, collate_fn=default_collate, transform=doubled
    )
    assert all((batch["twice"] == 2 * batch["id"][:, None]).all() for batch in it)


class Negated(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {"id": -sample["id"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subclass_changes_samples(folder, workers):
    it = StreamingDataLoader(
        Negated(local=folder, shuffle=True, batch_size=BATCH), num_workers=workers
    )
    assert [b["id"].tolist() for b in it] == [(-b["id"]).tolist() for b in make(folder).batches()]


def test_what_excludes_another_is_refused(folder):
    with pytest.raises(ConfigError, match="batch_transform= takes columns"):
        StreamingDataLoader(make(folder), batch_transform=doubled_batch, transform=doubled)


def test_a_last_batch_that_is_short_may_be_dropped(folder):
    pytest.importorskip("streamplug_mosaic")

    def lengths(**kwargs: Any) -> list[int]:
        data = make(folder, batch_size=10, partition_algo="orig", world=World())
        return [len(batch["id"]) for batch in StreamingDataLoader(data, **kwargs)]

    assert lengths() == [10] * 9 + [6]
    assert lengths(drop_last=True) == [10] * 9
    assert lengths(drop_last=True, collate_fn=default_collate) == [10] * 9


# -- state ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"transform": doubled}, {"batch_transform": doubled_batch}])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_is_exact_however_batches_are_made(folder, workers, how):
    whole = [batch["id"].tolist() for batch in make(folder).batches()]
    loader = StreamingDataLoader(make(folder), num_workers=workers, device="cpu", **how)
    for number, batch in enumerate(loader):
        assert batch["id"].tolist() == whole[number]
        if number == 4:
            state = loader.state_dict()
            break
    again = StreamingDataLoader(make(folder), num_workers=2 - workers, device="cpu", **how)
    again.load_state_dict(state)
    assert [batch["id"].tolist() for batch in again] == whole[5:]


def test_a_collate_fn_that_is_no_function_is_refused(folder):
    with pytest.raises(ConfigError, match=r"collate_fn=3: expected a function"):
        StreamingDataLoader(make(folder), collate_fn=3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("option", ["transform", "batch_transform", "collate_fn"])
def test_the_state_after_an_error_is_that_before_the_batch_that_failed(folder, workers, option):
    whole = [batch["id"].tolist() for batch in make(folder).batches()]

    def fail(values: Any) -> Any:
        samples = values if isinstance(values, list) else [values]
        if any(whole[3][-1] in np.atleast_1d(sample["id"]) for sample in samples):
            raise ValueError("too dark")
        return values

    loader = StreamingDataLoader(make(folder), num_workers=workers, device="cpu", **{option: fail})
    with pytest.raises(ValueError, match="too dark"):
        list(loader)
    again = StreamingDataLoader(make(folder))
    again.load_state_dict(loader.state_dict())
    assert [batch["id"].tolist() for batch in again] == whole[3:]
    if not workers:
        assert loader.dataset.state_dict() == loader.state_dict()


class Changing(StreamingDataset):
    """Changes samples on their way out, as subclasses do."""

    def __getitem__(self, at: Any) -> Any:
        return {"id": super().__getitem__(at)["id"] + 1000}


@pytest.mark.parametrize("wish", [{"num_threads": 1}, {"batch_transform": dict}])
def test_what_reads_columns_is_refused_for_a_data_set_that_changes_samples(folder, wish):
    data = Changing(local=folder, batch_size=BATCH)
    with pytest.raises(ConfigError, match=r"but Changing makes samples of its own"):
        StreamingDataLoader(data, **wish)
    assert next(iter(StreamingDataLoader(data)))["id"].tolist() == list(range(1000, 1000 + BATCH))


def turned(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        "back": columns["id"][::-1],
        "mirrored": columns["wide"][:, ::-1],
        "big": columns["id"].astype(">i8"),
        "flags": columns["flag"] > 0,
        "number": np.array(3.5),
        "none": np.empty((0, 4), np.int64),
        "spread": np.broadcast_to(np.float32(1), (BATCH, 2)).copy(),
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_arrays_of_any_strides_byte_order_and_shape_become_tensors(folder, workers):
    loader = StreamingDataLoader(
        make(folder, shuffle=False), batch_transform=turned, num_workers=workers
    )
    batch = next(iter(loader))
    assert batch["back"].tolist() == list(range(BATCH))[::-1]
    assert batch["mirrored"].tolist() == [[n] * WIDE for n in range(BATCH)]
    assert batch["big"].tolist() == list(range(BATCH))
    assert batch["big"].dtype == torch.int64
    assert batch["flags"].tolist() == [n % 2 == 1 for n in range(BATCH)]
    assert (batch["number"].shape, batch["number"].item()) == ((), 3.5)
    assert (batch["none"].shape, batch["spread"].shape) == ((0, 4), (BATCH, 2))


def test_loops_that_are_left_early_free_their_slots(folder):
    loader = StreamingDataLoader(make(folder), num_workers=2, persistent_workers=True)
    kept = []
    for left in range(6):
        for number, batch in enumerate(loader):
            kept.append(batch)
            if number == left:
                break
    for batch in kept:
        check(batch)
    kept.clear()
    for batch in loader:  # takes what was on its way
        check(batch)
    del batch
    gc.collect()  # torch 2.6 keeps batches in reference cycles
    memory = loader._iterator._dataset._reader._shared_arrays
    assert [each._taken.tolist() for each in memory] == [[0] * 4] * 2


@pytest.mark.parametrize("options", [{"in_order": False}, {"prefetch_factor": 2}, {"device": "x"}])
def test_a_loader_that_cannot_be_made_sets_no_batch_size(folder, options):
    dataset = StreamingDataset(local=folder)
    with pytest.raises((ValueError, RuntimeError)):
        StreamingDataLoader(dataset, batch_size=4, **options)
    assert dataset.batch_size is None
    loader = StreamingDataLoader(dataset, batch_size=8, drop_last=True)
    assert (loader.batch_size, loader.batch_sampler.batch_size, len(loader)) == (8, 8, SIZE // 8)
    assert len(next(iter(loader))["id"]) == 8


class UntypedLoader(StreamingDataLoader):
    def __init__(self, dataset, batch_size=BATCH, own=None, **kwargs):
        super().__init__(dataset, batch_size, **kwargs)
        self.own = own


def test_configs_of_subclasses_without_types_make_the_data_set(folder):
    config = {"dataset": {"local": folder}, "loader": {"own": "x", "num_workers": 0}}
    loader = UntypedLoader.from_config(config, dataset={"columns": ["id"]})
    assert (loader.own, loader.batch_size) == ("x", BATCH)
    assert [list(batch) for batch in loader] == [["id"]] * (SIZE // BATCH)


class Filtered(StreamingDataset):
    def __iter__(self):
        return (sample for sample in super().__iter__() if sample["flag"])


class FilteredBatches(StreamingDataset):
    def batches(self, batch_size=None, *, num_threads=0):
        batches = super().batches(batch_size, num_threads=num_threads)
        return (batch for batch in batches if batch["id"][0] % 16)


class Changed(StreamingDataset):
    def __iter__(self):
        return ({"n": -sample["id"]} for sample in super().__iter__())


@pytest.mark.parametrize("workers", [0, 2])
def test_data_sets_that_drop_samples_are_warned_of(folder, workers, caplog, monkeypatch):
    monkeypatch.setattr("streamplug.run.hints._logged", set())
    changed = Changed(local=folder, batch_size=BATCH)
    loader = StreamingDataLoader(changed, num_workers=workers)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert [len(list(loader)), len(list(loader))] == [SIZE // BATCH - 1, SIZE // BATCH]
    assert not caplog.records
    loader = StreamingDataLoader(Filtered(local=folder, batch_size=BATCH), num_workers=workers)
    assert len(list(loader)) == SIZE // BATCH // 2
    assert "Filtered.__iter__ drops or adds samples: an epoch ended after 6 of 12" in caplog.text
    loader = StreamingDataLoader(
        FilteredBatches(local=folder, batch_size=BATCH), num_workers=workers
    )
    assert len(list(loader)) == 6
    text = "FilteredBatches.batches drops or adds samples: an epoch ended after 6 of 12"
    assert text in caplog.text


class Scaled(StreamingDataset):
    factor = 1

    def __getitem__(self, at):
        assert get_worker_info().dataset is self
        return super().__getitem__(at)["id"] * self.factor


def set_factor(worker: int) -> None:
    get_worker_info().dataset.factor = 10


@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_init_fn_finds_the_data_set(folder, persistent):
    for function, factor in ((set_factor, 10), (None, 1)):
        loader = StreamingDataLoader(
            Scaled(local=folder, batch_size=BATCH),
            num_workers=2,
            worker_init_fn=function,
            persistent_workers=persistent,
        )
        for _ in range(2):
            assert torch.cat(list(loader)).tolist() == [n * factor for n in range(SIZE)]
