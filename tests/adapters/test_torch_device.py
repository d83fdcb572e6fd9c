"""Copies to devices: order, streams, errors. CUDA is a stand-in; `tox -c tests -e gpu` has a device."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.adapters import torch_device  # noqa: E402
from streamplug.adapters.torch_device import find_device, move_batches  # noqa: E402
from streamplug.errors import ConfigError, DataError, StreamplugError  # noqa: E402
from tests.adapters.fake_cuda import DeviceTensor, FakeTorch  # noqa: E402

CUDA = torch.device("cuda", 0)


@pytest.fixture
def fake(monkeypatch):
    torch_device._side_stream.cache_clear()
    fake = FakeTorch()
    monkeypatch.setattr(torch_device, "torch", fake)
    yield fake
    torch_device._side_stream.cache_clear()


def logged(count: int, log: list[Any], size: int = 3) -> Any:
    for n in range(1, count + 1):
        log.append(("read", n))
        yield {"x": torch.full((size,), n)}


def test_each_batch_is_copied_while_the_one_before_is_in_use(fake):
    log = fake.cuda.log
    for n, batch in enumerate(move_batches(logged(3, log), CUDA), 1):
        log.append(("use", n))
        assert type(batch["x"]) is DeviceTensor
    copy = ("copy", "cuda:0")
    assert log == [
        *(("read", 1), copy, ("read", 2), copy, ("use", 1)),
        *(("read", 3), copy, ("use", 2)),
        ("use", 3),
    ]
    (side,) = fake.cuda.streams
    assert side not in fake.cuda.main.values()


def test_the_stream_in_use_waits_for_the_copy_and_nothing_else_does(fake):
    main, values = fake.cuda.main[0], []
    moved = move_batches(logged(3, []), CUDA)
    batch = next(moved)
    assert batch["x"].streams == [main]  # so that its memory is not reused too early
    main.add(lambda: values.append(batch["x"].tolist()))
    main.run()
    assert not values
    assert batch["x"].tolist() == [0, 0, 0]  # no call has waited
    fake.run()
    assert values == [[1, 1, 1]]


def test_a_consumer_with_a_stream_of_its_own_waits_on_it(fake):
    own = fake.cuda.Stream(CUDA)
    moved = move_batches(logged(2, []), CUDA)
    with fake.cuda.stream(own):
        batch = next(moved)
    assert batch["x"].streams == [own]
    assert len(own.work) == 1
    assert not fake.cuda.main[0].work


def test_memory_that_the_source_reuses_is_read_before_the_next_batch(fake):
    shared = torch.zeros(4)

    def batches():
        for n in range(1, 4):
            yield shared.fill_(n)

    kept = list(move_batches(batches(), CUDA))
    fake.run()
    assert [tensor.tolist() for tensor in kept] == [[n] * 4 for n in range(1, 4)]


def test_an_error_of_the_source_comes_when_it_is_the_turn_of_its_batch(fake):
    def batches():
        yield from logged(2, [])
        raise DataError("sample 7")

    moved = move_batches(batches(), CUDA)
    next(moved)
    assert next(moved)["x"].shape == (3,)
    with pytest.raises(DataError, match="sample 7"):
        next(moved)


def test_an_error_of_a_copy_comes_when_it_is_the_turn_of_its_batch(fake):
    fake.max_pinned_bytes = 100
    batches = iter([torch.ones(size) for size in (9, 3, 99, 1)])
    moved = move_batches(batches, CUDA)
    assert [len(next(moved)) for _ in range(2)] == [9, 3]
    with pytest.raises(MemoryError):
        next(moved)


@pytest.mark.parametrize("end", ["close", "error", "exhaust"])
def test_no_batch_outlives_its_loop_even_where_an_error_is_handled(fake, end):
    def batches():
        yield from logged(2, [])
        if end == "error":
            raise DataError("no more")

    moved, error = move_batches(batches(), CUDA), None
    gc.disable()  # memory is free at once, and not when garbage is collected
    try:
        next(moved)
        if end == "close":
            moved.close()
        else:
            next(moved)
            try:
                next(moved)
            except (DataError, StopIteration) as raised:
                error = weakref.ref(raised) if end == "error" else None
                fake.run()
                assert [copy() for copy in fake.cuda.copies] == [None, None]
        fake.run()
        assert [copy() for copy in fake.cuda.copies] == [None, None]
        assert error is None or error() is None
    finally:
        gc.enable()
    assert not any(stream.work for stream in fake.cuda.streams)


def test_loops_share_one_stream_of_each_device(fake):
    loops = [move_batches(logged(3, []), device) for device in (CUDA, CUDA, torch.device("cuda:1"))]
    for _ in range(3):
        for loop in loops:
            next(loop)
    for loop in loops:
        assert next(loop, None) is None
    assert [str(stream.device) for stream in fake.cuda.streams] == ["cuda:0", "cuda:1"]
    again = move_batches(logged(1, []), CUDA)
    next(again)
    assert len(fake.cuda.streams) == 2  # an epoch reuses the memory of the one before


def test_a_device_without_a_number_is_the_current_one(fake):
    fake.cuda.device = 1
    batch = next(move_batches(logged(1, []), torch.device("cuda")))
    assert batch["x"].streams == [fake.cuda.main[1]]


class Moving:
    """An object of others that can be moved."""

    def __init__(self, where: str = "cpu") -> None:
        self.where = where

    def to(self, device: Any) -> Moving:
        return Moving(str(device))


@pytest.mark.parametrize("device", ["cuda:0", "meta"])
def test_tensors_in_dicts_and_lists_of_other_classes_are_moved(fake, device):
    class Record(dict): ...

    class Values(list): ...

    batch = Record(a=torch.ones(2), b=Values([torch.ones(1), "text"]))
    moved = next(move_batches(iter([batch]), torch.device(device)))
    fake.run()
    assert (type(moved), type(moved["b"])) == (Record, Values)
    assert moved["b"][1] == "text"
    for tensor, before in ((moved["a"], batch["a"]), (moved["b"][0], batch["b"][0])):
        assert tensor is not before
        assert (type(tensor) is DeviceTensor) == device.startswith("cuda")


@pytest.mark.parametrize("device", ["cuda:0", "cpu", "meta"])
def test_nested_batches_keep_their_structure(fake, device):
    array, moving = np.arange(3), Moving()
    batch = {"a": [torch.ones(2), "text", (torch.ones(1), None)], 3: array, "m": moving, "b": b"x"}
    moved = next(move_batches(iter([batch]), torch.device(device)))
    fake.run()
    assert list(moved) == list(batch)
    assert moved[3] is array
    assert moved["a"][1:] == ["text", (moved["a"][2][0], None)]
    assert moved["m"].where == device
    assert moving.where == "cpu"
    assert moved["b"] == b"x"
    if device != "meta":
        assert moved["a"][0].tolist() == [1, 1]
    assert (type(moved["a"][2][0]) is DeviceTensor) == device.startswith("cuda")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.arange(24).reshape(4, 6).T,
        torch.arange(4).expand(3, 4),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.tensor([True, False]),
        torch.arange(10)[::3],
    ],
)
def test_values_and_strides_are_kept(fake, tensor):
    copy = next(move_batches(iter([tensor]), CUDA))
    fake.run()
    assert torch.equal(copy.as_subclass(torch.Tensor), tensor)
    assert copy.stride() == torch.empty_like(tensor).stride()


def test_batches_of_any_size_follow_each_other(fake):
    sizes = [5, 1, 900, 0, 17]
    moved = list(move_batches(iter([torch.full((n,), n) for n in sizes]), CUDA))
    fake.run()
    assert [batch.tolist() for batch in moved] == [[n] * n for n in sizes]


def test_pinned_tensors_are_copied_from_where_they_are(fake):
    fake.max_pinned_bytes = 0
    batch = next(move_batches(iter([fake.pin(torch.ones(4))]), CUDA))
    fake.run()
    assert batch.tolist() == [1] * 4


def test_a_batch_is_refused_while_a_graph_is_captured(fake):
    moved = move_batches(logged(5, []), CUDA)
    next(moved)
    fake.cuda.capturing = True
    with pytest.raises(StreamplugError, match="while a CUDA graph is captured: request it before"):
        next(moved)


# -- arguments, and the loader --------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cuda:2", "device='cuda:2': torch finds 2 CUDA devices; check the driver"),
        ("gpu", "device='gpu': Expected one of cpu, cuda"),
    ],
)
def test_devices_that_do_not_exist_are_refused(fake, device, error):
    with pytest.raises(ConfigError, match=error):
        find_device(device)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cpu", "meta", "mps"])
def test_devices_are_found_by_name(fake, device):
    assert find_device(device) == torch.device(device)
    assert find_device(torch.device(device)) == torch.device(device)
    assert find_device(None) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=str(out), columns={"id": "int", "wide": "ndarray:int16:4096"}) as writer:
        for n in range(32):
            writer.write({"id": n, "wide": np.full(4096, n, np.int16)})
    return str(out)


@pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning")
def test_the_state_of_the_data_set_after_an_epoch_is_the_next_epoch(fake, folder):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=4)
    loader = StreamingDataLoader(data, device="cuda")
    for _ in loader:
        fake.run()
    state = data.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)
    assert state == loader.state_dict()


@pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning")
def test_the_state_of_the_data_set_after_an_interrupt_is_that_after_the_batch_in_use(fake, folder):
    used = []

    def interrupt(batch):
        if len(used) == 2:  # while the third batch is being copied
            raise KeyboardInterrupt
        return batch

    data = StreamingDataset(local=folder, shuffle=True, batch_size=4)
    loader = StreamingDataLoader(data, batch_transform=interrupt, device="cuda")

    def train():
        for batch in loader:
            fake.run()
            used.append(batch)

    with pytest.raises(KeyboardInterrupt):
        train()
    state = data.state_dict()
    assert (state["epoch"], state["sample_in_epoch"]) == (0, 4 * len(used))
    assert state == loader.state_dict()


def test_the_state_of_the_data_set_after_an_error_of_a_copy_is_before_that_batch(folder):
    class Full:
        def to(self, device: Any) -> Any:
            raise RuntimeError("out of memory")

    data = StreamingDataset(local=folder, shuffle=True, batch_size=4)
    batches = iter([1, 2, Full()])
    loader = StreamingDataLoader(data, batch_transform=lambda _: next(batches), device="cpu")
    with pytest.raises(RuntimeError, match="out of memory"):
        list(loader)
    assert data.state_dict()["sample_in_epoch"] == 4 * 2
    assert data.state_dict() == loader.state_dict()


@pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_copies_batches_of_workers_and_keeps_its_state_exact(fake, folder, workers):
    def load(number: int) -> StreamingDataLoader:
        data = StreamingDataset(local=folder, shuffle=True, batch_size=4)
        return StreamingDataLoader(data, num_workers=number, device="cuda")

    loader, ids = load(workers), []
    assert not loader.pin_memory  # torch's thread would call CUDA while graphs are captured
    for step, batch in enumerate(loader):
        fake.run()
        assert (batch["wide"] == batch["id"][:, None]).all()
        ids.append(batch["id"].tolist())
        if step == 2:
            state = loader.state_dict()
    again = load(0)
    again.load_state_dict(state)
    rest = []
    for batch in again:
        fake.run()
        rest.append(batch["id"].tolist())
    assert rest == ids[3:]
    assert sorted(n for batch in ids for n in batch) == list(range(32))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("enabled", [True, False])
def test_forked_processes_leave_batches_that_are_garbage_alone(fake, enabled):
    class Batch:
        def __init__(self) -> None:
            self.cycle, self.process = self, os.getpid()

        def to(self, device: Any) -> Batch:
            return self

        def __del__(self) -> None:
            if os.getpid() != self.process:
                os._exit(1)  # as torch ends a process that frees memory of a device

    def collect() -> None:
        assert gc.isenabled() == enabled
        gc.collect()

    try:
        gc.disable()
        assert len(list(move_batches(iter([Batch(), Batch()]), CUDA))) == 2
        if enabled:
            gc.enable()
        process = multiprocessing.get_context("fork").Process(target=collect)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
