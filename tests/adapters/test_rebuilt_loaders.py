"""Loaders that trainers build of the attributes of one of ours: the same batches, or an error."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, default_collate  # noqa: E402, TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402

WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(
        out=out, columns={"n": "int", "x": "ndarray:float32:3"}, size_limit=300
    ) as writer:
        writer.write_batch({"n": np.arange(40), "x": np.ones((40, 3), np.float32)})
    return str(out)


def make(folder: str, **options: Any) -> StreamingDataLoader:
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=8)
    return StreamingDataLoader(dataset, **options)


def negate(sample):
    return {"m": -sample["n"], "x": sample["x"] + 1}


def negate_or_not(sample, rng):
    return {"m": sample["n"] * (1 if rng.random() < 0.5 else -1), "x": sample["x"]}


def draw(sample):
    return {"m": sample["n"] + torch.rand(1)}


def to_pairs(samples):
    return [(sample.get("m", sample.get("n")), "pair") for sample in samples]


def negate_columns(columns):
    return {"m": -columns["n"]}


def negate_columns_or_not(columns, rng):
    return {"m": columns["n"] * (1 if rng.random() < 0.5 else -1)}


TRANSFORMS = [
    {},
    {"transform": negate},
    {"transform": negate_or_not},
    {"transform": draw, "seed_torch": True},
    {"collate_fn": to_pairs},
    {"transform": negate, "collate_fn": to_pairs},
    {"batch_transform": negate_columns},
    {"batch_transform": negate_columns_or_not, "num_threads": 1},
    {"num_threads": 2, "device": "cpu"},
]


def names(options):
    return ", ".join(getattr(value, "__name__", str(value)) for value in options.values()) or "none"


BOTH = pytest.mark.parametrize("options", TRANSFORMS, ids=names)


def rebuild_of_vars(loader: Any) -> Any:
    """Return a loader as Lightning makes it: attributes that differ from the defaults of the arguments."""
    attributes = {name: v for name, v in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    parameters.update(inspect.signature(DataLoader.__init__).parameters)
    used = {
        name: attributes[name]
        for name, parameter in parameters.items()
        if name in attributes and parameter.default is not attributes[name]
    }
    return type(loader)(**{**used, "sampler": None, "batch_sampler": None})


def rebuild_of_attributes(loader: Any) -> Any:
    """Return a loader of all attributes that have the names of arguments."""
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    parameters.update(inspect.signature(DataLoader.__init__).parameters)
    ignored = ("self", "kwargs", "sampler", "batch_sampler", "shuffle", "args")
    return type(loader)(
        **{name: getattr(loader, name) for name in parameters if name not in ignored}
    )


def plain(batch: Any) -> Any:
    return {k: v.tolist() for k, v in batch.items()} if isinstance(batch, dict) else batch


@WORKERS
@BOTH
@pytest.mark.parametrize("rebuild", [rebuild_of_vars, rebuild_of_attributes])
def test_a_loader_of_its_attributes_yields_the_same(folder, options, workers, rebuild):
    expected = [plain(batch) for batch in make(folder, **options)]
    loader = rebuild(rebuild(make(folder, num_workers=workers, **options)))
    assert [plain(batch) for batch in loader] == expected


def build_of_torch(loader: Any) -> Any:
    """Return a loader of torch over the data set, as Accelerate's `skip_first_batches` makes it."""
    taken = ("num_workers", "collate_fn", "pin_memory", "batch_size", "drop_last")
    return DataLoader(loader.dataset, **{name: getattr(loader, name) for name in taken})


@WORKERS
@BOTH
def test_a_loader_of_torch_yields_the_same_or_raises(folder, options, workers):
    loader = build_of_torch(make(folder, num_workers=workers, **options))
    if "batch_transform" in options:
        with pytest.raises(ConfigError, match=r"batch_transform=.*load_state_dict"):
            next(iter(loader))
    elif options.get("transform") in (negate_or_not, draw):
        with pytest.raises(ConfigError, match=r"random numbers.*load_state_dict"):
            next(iter(loader))
    else:
        expected = [plain(batch) for batch in make(folder, **options)]
        assert [plain(batch) for batch in loader] == expected


def test_attributes_may_be_set(folder):
    loader = make(folder)
    loader.transform = negate
    assert set(next(iter(loader))) == {"m", "x"}
    loader.collate_fn = to_pairs
    assert next(iter(loader))[0][1] == "pair"
    loader.collate_fn = default_collate
    loader.transform = None
    assert set(next(iter(loader))) == {"n", "x"}


def test_the_collate_fn_of_torch_is_none(folder):
    loader = make(folder, collate_fn=default_collate, batch_transform=negate_columns)
    assert set(next(iter(loader))) == {"m"}
