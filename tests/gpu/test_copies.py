"""Batches on a CUDA device: values, memory, no synchronisation, graphs, compiled models, processes."""

from __future__ import annotations

import gc
import multiprocessing
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.adapters.torch_device import move_batches  # noqa: E402
from streamplug.errors import StreamplugError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES, BATCH, WIDE = 192, 16, 1 << 14
SLEEP_CYCLES = 20_000_000  # some 10 ms


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"id": "int", "wide": f"ndarray:int32:{WIDE}", "text": "str"}
    with MDSWriter(out=str(out), columns=columns) as writer:
        for n in range(SAMPLES):
            writer.write({"id": n, "wide": np.full(WIDE, n, np.int32), "text": str(n)})
    return str(out)


def make_loader(folder: str, device: Any = "cuda", **kwargs: Any) -> StreamingDataLoader:
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return StreamingDataLoader(data, device=device, **kwargs)


def expected_ids(folder: str) -> list[list[int]]:
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return [batch["id"].tolist() for batch in data.batches()]


@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 2}, {"num_workers": 2, "pin_memory": True}])
def test_batches_on_the_device_are_those_of_the_host(folder, kwargs):
    ids = []
    for batch in make_loader(folder, **kwargs):
        assert batch["wide"].is_cuda
        assert (batch["wide"] == batch["id"][:, None]).all()
        assert batch["text"] == [str(n) for n in batch["id"].tolist()]
        ids.append(batch["id"].tolist())
    assert ids == expected_ids(folder)


@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 2}])
def test_memory_is_not_reused_while_a_slow_step_reads_it(folder, kwargs):
    sums = []
    for batch in make_loader(folder, **kwargs):
        torch.cuda._sleep(SLEEP_CYCLES)
        sums.append(batch["wide"].sum(1) // WIDE)
        del batch
    assert [each.tolist() for each in sums] == expected_ids(folder)


def test_a_loop_never_waits_for_the_device(folder):
    loader, seen = make_loader(folder, num_workers=2), 0
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    try:
        for batch in loader:
            total += batch["wide"].sum()
            seen += 1
            torch.cuda.set_sync_debug_mode("error")  # from the second batch on
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert seen == SAMPLES // BATCH
    assert total.item() == WIDE * sum(range(SAMPLES))


def test_memory_is_the_same_in_each_epoch(folder):
    loader, reserved = make_loader(folder), []
    for _ in range(4):
        for batch in loader:
            batch["wide"].sum()
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[1:] == reserved[1:2] * 3


def test_loaders_take_turns(folder):
    loops = [iter(make_loader(folder, num_workers=n)) for n in (0, 1)]
    for batches in zip(*loops):
        assert torch.equal(batches[0]["wide"], batches[1]["wide"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_a_device_by_number_need_not_be_the_current_one(folder):
    for batch in make_loader(folder, "cuda:1", num_workers=1):
        assert batch["wide"].device == torch.device("cuda:1")
        assert (batch["wide"] == batch["id"][:, None]).all()


@pytest.mark.parametrize("capture_first", [True, False])
def test_a_graph_reads_batches_that_are_copied_into_its_input(folder, capture_first):
    static = torch.zeros(BATCH, WIDE, dtype=torch.int32, device="cuda")
    graph, sums = torch.cuda.CUDAGraph(), []

    def capture() -> torch.Tensor:
        with torch.cuda.graph(graph):
            return static.sum(1) // WIDE

    result = capture() if capture_first else None
    for batch in make_loader(folder, num_workers=1):
        if result is None:
            result = capture()  # while copies of the next batch are in flight
        static.copy_(batch["wide"])
        graph.replay()
        sums.append(result.clone())
    assert [each.tolist() for each in sums] == expected_ids(folder)


def test_a_batch_is_refused_within_a_capture(folder):
    loop = iter(make_loader(folder))
    next(loop)
    graph, error = torch.cuda.CUDAGraph(), None
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda").add_(1)
        try:
            next(loop)
        except StreamplugError as raised:
            error = raised
    assert "while a CUDA graph is captured" in str(error)
    graph.replay()  # the capture is whole
    assert torch.ones(1, device="cuda").item() == 1


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_models_read_batches(folder, mode):
    compiled = torch.compile(lambda wide: wide.sum(1) // WIDE, mode=mode)
    ids = [compiled(batch["wide"]).tolist() for batch in make_loader(folder, num_workers=1)]
    assert ids == expected_ids(folder)


def test_an_error_of_the_device_comes_when_it_is_the_turn_of_its_batch():
    class TooLarge:
        def to(self, device: Any) -> None:
            torch.empty(1 << 50, dtype=torch.uint8, device=device)

    moved = move_batches(iter([torch.ones(3), TooLarge()]), torch.device("cuda"))
    assert next(moved).tolist() == [1, 1, 1]
    with pytest.raises(torch.OutOfMemoryError):
        next(moved)


def rank(number: int, folder: str) -> None:
    ids = [batch["id"].tolist() for batch in make_loader(folder, num_workers=1)]
    assert ids == expected_ids(folder)


def test_several_processes_share_a_device(folder):
    torch.multiprocessing.spawn(rank, (folder,), nprocs=2)


def test_forked_processes_leave_batches_that_are_garbage_alone(folder):
    gc.disable()
    try:
        for batch in make_loader(folder):
            batch["cycle"] = batch
        del batch
        process = multiprocessing.get_context("fork").Process(target=gc.collect)
        process.start()
        process.join(60)
        assert process.exitcode == 0
    finally:
        gc.enable()
