"""Batches of torch's own loader with workers, beside those that it makes without."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_map  # noqa: E402, TID251
from torch.utils.data import DataLoader, default_collate  # noqa: E402, TID251
from torch.utils.data._utils.collate import (  # noqa: E402, TID251
    collate_numpy_array_fn,
    default_collate_fn_map,
)

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.adapters import torch_transfers  # noqa: E402
from streamplug.adapters.shared_memory import SharedArrays, StringList  # noqa: E402
from tests.start_methods import METHODS  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not SharedArrays.possible(), reason="no files without a name here"),
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning"),
]

SIZE, BATCH, WIDE = 48, 8, 4096
COLUMNS = {
    "id": "int", "wide": f"ndarray:uint16:{WIDE}", "narrow": "ndarray:float32:3", "score": "float32",
    "text": "str", "long": "str", "file": "bytes", "tree": "json",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns=COLUMNS, out=out, size_limit="200kb") as writer:
        for n in range(SIZE):
            arrays = {"wide": np.full(WIDE, n, np.uint16), "narrow": np.full(3, n, np.float32)}
            texts = {"text": f"{n}", "long": f"{n}ä" * 1000, "file": bytes([n]) * (3000 + n)}
            writer.write(
                {"id": n, "score": n / 2, "tree": {"n": n, "x": [n, n]}, **arrays, **texts}
            )
    return str(out)


def make(folder: str) -> StreamingDataset:
    return StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)


def described(value: Any) -> Any:
    """Return types and values of all parts of a batch."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.layout, value.shape, value.to_dense().tolist()
    if isinstance(value, dict):
        return type(value), {key: described(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [described(part) for part in value]
    return type(value), value


@pytest.fixture(scope="module")
def expected(folder) -> list[Any]:
    return [described(batch) for batch in DataLoader(make(folder), BATCH)]


@pytest.fixture
def mapped(monkeypatch) -> list[Any]:
    """What this process maps of the memory of workers."""
    seen, map_arrays = [], torch_transfers.map_arrays
    monkeypatch.setattr(
        torch_transfers, "map_arrays", lambda *a: seen.append(a[0]) or map_arrays(*a)
    )
    return seen


def soon(holds: Callable[[], bool]) -> bool:
    for _ in range(100):
        gc.collect()
        if holds():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_those_of_a_loader_without_workers(folder, expected, mapped, method):
    loader = DataLoader(make(folder), BATCH, num_workers=1, multiprocessing_context=method)
    kept = list(loader)
    assert [described(batch) for batch in kept] == expected
    assert len(mapped) == 3 * len(kept)  # wide, long and file; others are small
    for batch in kept:
        batch["wide"].view(torch.int16).add_(1)
        batch["id"] += 1
    assert [int(batch["wide"][-1, -1]) for batch in kept] == [int(b["id"][-1]) for b in kept]


def test_what_was_used_and_killed_leaves_nothing(folder, expected):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:streamplug")

    before = descriptors(), mappings()
    loader = DataLoader(make(folder), BATCH, num_workers=2, persistent_workers=True)
    batch, *others = loader
    again = iter(loader)
    next(again)
    assert mappings() > before[1]
    os.kill(again._workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        list(again)
    assert described(batch) == expected[0]
    del loader, again, batch, others
    assert soon(lambda: descriptors() <= before[0] and mappings() <= before[1])


def test_more_batches_may_be_kept_than_there_are_slots(folder, expected, mapped, monkeypatch):
    monkeypatch.setattr(torch_transfers, "_SLOTS", 3)
    kept = list(DataLoader(make(folder), BATCH, num_workers=1))
    assert [described(batch) for batch in kept] == expected
    # Slots of strings are free again once these are copied; the arrays are kept.
    assert 0 < sum("<u2" in packed.fields[0] for packed in mapped) < len(kept)


def odd(samples: list[Any]) -> Any:
    wide = torch.stack([torch.from_numpy(sample["wide"]) for sample in samples]).float()
    batch = default_collate(samples)
    return {
        "turned": wide.T,
        "shifted": (wide[:, :-1], wide[:, 1:]),
        "half": wide.bfloat16(),
        "sparse": (wide * (wide > 3)).to_sparse(),
        "empty": wide[:0].clone(),
        "expanded": wide[:1, :1].expand(500, 500),
        "scalar": wide.sum(),
        "grad": wide.clone().requires_grad_(),
        "same": [batch["wide"], batch["wide"]],
        "sizes": tree_map(lambda x: len(x) if isinstance(x, (bytes, str)) else x, batch),
    }


def test_a_collate_function_may_return_any_tensors(folder):
    loaders = [DataLoader(make(folder), BATCH, num_workers=n, collate_fn=odd) for n in (0, 1)]
    for batch, other in zip(*loaders, strict=True):
        assert described(other) == described(batch)
        assert {k: v.stride() for k, v in other.items() if isinstance(v, torch.Tensor)} == {
            k: v.stride() for k, v in batch.items() if isinstance(v, torch.Tensor)
        }
        assert other["grad"].requires_grad
        assert other["same"][0] is other["same"][1]


def test_a_map_style_data_set_hands_over_as_well(folder, expected, mapped):
    source = make(folder).as_source()
    loaders = [DataLoader(source, BATCH, num_workers=workers) for workers in (0, 1)]
    assert [described(b) for b in loaders[1]] == [described(b) for b in loaders[0]]
    assert len(mapped) == 3 * SIZE // BATCH


def collate_sums(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    return torch.tensor([int(array.sum()) for array in batch])


def use_sums(worker: int) -> None:
    default_collate_fn_map[np.ndarray] = collate_sums


def test_a_collation_of_the_user_is_kept(folder):
    for batch in DataLoader(make(folder), BATCH, num_workers=1, worker_init_fn=use_sums):
        assert batch["wide"].tolist() == (WIDE * batch["id"]).tolist()


def test_this_process_collates_as_before(folder, expected):
    assert default_collate_fn_map[np.ndarray] is collate_numpy_array_fn


MIXED = [["a" * 1000, None], ["a", 5], [b"a" * 1000, "a"], [{"x": "a" * 1000}, {"x": None}]]


@pytest.mark.parametrize("values", MIXED, ids=["none", "number", "bytes", "nested"])
def test_strings_beside_other_values_arrive_as_they_are(tmp_path, values):
    with MDSWriter(columns={"x": "pkl"}, out=tmp_path / "one") as writer:
        for value in values:
            writer.write({"x": value})
    dataset = StreamingDataset(local=tmp_path / "one", batch_size=2, allow_unsafe_types=True)
    for loader in DataLoader, StreamingDataLoader:
        (expected,), (batch,) = (list(loader(dataset, 2, num_workers=n)) for n in (0, 1))
        assert described(batch) == described(expected)


def test_strings_are_pickled_as_a_plain_list():
    assert type(pickle.loads(pickle.dumps(StringList([b"x"])))) is list


DTYPES = ["u2", "<f4", ">f4", "O", "U2", "?", "c8", "M8[s]", "f2"]
SHAPES = [(), (0,), (2,), (2, 1)]
FIRST = [np.ones(shape, dtype) for dtype in DTYPES for shape in SHAPES]
OTHERS = [
    np.zeros(2, np.uint16), np.zeros((2, 1), np.float32), np.zeros(3, bool), np.ma.zeros(2),
    np.float32(2), 2.5, [1, 2], None,
]  # fmt: skip


def collated(collate: Callable[..., Any], batch: list[Any]) -> Any:
    """Return what a collate function makes of a batch, or its error."""
    try:
        tensor = collate(batch, collate_fn_map=default_collate_fn_map)
    except Exception as error:
        return type(error), str(error)
    return tensor.dtype, tensor.shape, tensor.numpy().tobytes()


@pytest.mark.parametrize("first", FIRST, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_arrays_are_collated_as_torch_does(first):
    for batch in [first], [first, first], *([first, other] for other in OTHERS):
        theirs = collated(collate_numpy_array_fn, batch)
        assert collated(torch_transfers._collate_arrays, batch) == theirs
