"""Errors of transforms and of collation say on which sample or batch they failed."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes"),
]

SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": range(SIZE)})
    return str(out)


def dataset(folder: str, cls: Any = StreamingDataset, **options: Any) -> Any:
    place = {"batch_size": 5, "world": World(ranks_per_node=2, rank=1), "shuffle": True}
    return cls(local=folder, **{**place, **options})


def fail(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["n"] == 33:
        raise KeyError("caption")
    return sample


def fail_with_rng(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    rng.random()
    return fail(sample)


def fail_by_rng(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return fail_batch(columns)


def fail_batch(columns: dict[str, Any]) -> dict[str, Any]:
    if 33 in columns["n"]:
        raise ValueError("too dark")
    return columns


def fail_collation(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fail(sample) for sample in samples]


def epoch_with(data: Any, sample: int) -> tuple[int, Any]:
    """Return the first epoch in which the data set's rank reads a sample, and its use."""
    uses = (use for epoch in range(9) for use in data.where(sample, epoch=epoch))
    use = next(use for use in uses if use.rank == 1)
    return use.epoch, use


def error_of(loader: Any) -> BaseException:
    with pytest.raises((KeyError, ValueError)) as caught:
        list(chain.from_iterable(loader for _ in range(9)))
    return caught.value


def text_of(error: BaseException) -> str:
    return "".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"transform": fail},
        {"transform": fail_with_rng},
        {"transform": fail, "seed_torch": True},
    ],
)
def test_the_error_of_a_transform_names_the_sample(folder, options, workers):
    data = dataset(folder)
    _, use = epoch_with(data, 33)
    text = text_of(error_of(StreamingDataLoader(data, num_workers=workers, **options)))
    assert "caption" in text
    place = f"{use.file}, row {use.index}; epoch {use.epoch}, step {use.step}"
    assert f"raised for sample 33 ({data.streams[0].url}, {place})" in text


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_transform": fail_batch},
        {"batch_transform": fail_by_rng},
        {"batch_transform": fail_batch, "seed_torch": True},
        {"collate_fn": fail_collation},
        {"num_threads": 2, "batch_transform": fail_batch},
    ],
)
def test_the_error_of_a_batch_says_how_to_list_its_samples(folder, options, workers):
    data = dataset(folder)
    _, use = epoch_with(data, 33)
    text = text_of(error_of(StreamingDataLoader(data, num_workers=workers, **options)))
    assert f"dataset.explain({use.step}, epoch={use.epoch}, rank=1)" in text
    assert 33 in [use.sample for use in data.explain(use.step, epoch=use.epoch, rank=1)]


def test_the_sample_is_named_in_a_run_that_was_resumed(folder):
    data = dataset(folder)
    _, use = epoch_with(data, 33)
    data.load_state_dict({**data.state_dict(0), "epoch": use.epoch})
    text = text_of(error_of(StreamingDataLoader(data, transform=fail)))
    assert "sample 33 (" in text


def test_a_substituted_sample_may_be_meant(folder):
    data = dataset(folder, on_error="substitute")
    assert "or its substitute" in text_of(error_of(StreamingDataLoader(data, transform=fail)))


class OwnSamples(StreamingDataset):
    def __getitem__(self, at):
        return fail(super().__getitem__(at))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_of_a_getitem_names_the_sample(folder, workers):
    data = dataset(folder, cls=OwnSamples)
    _, use = epoch_with(data, 33)
    text = text_of(error_of(StreamingDataLoader(data, num_workers=workers)))
    place = f"{use.file}, row {use.index}; epoch {use.epoch}, step {use.step}"
    assert f"raised for sample 33 ({data.streams[0].url}, {place})" in text


class Twice(StreamingDataset):
    def __iter__(self):
        for sample in super().__iter__():
            yield sample
            yield sample


def test_no_sample_is_named_that_another_one_may_be(folder):
    data = dataset(folder, cls=Twice)
    assert "sample 33" not in text_of(error_of(StreamingDataLoader(data, transform=fail)))


def test_the_sample_is_named_while_two_loops_are_active(folder):
    data = dataset(folder)
    other = iter(data)
    next(other)
    error = error_of(StreamingDataLoader(data, transform=fail))
    other.close()
    assert "sample 33" in text_of(error)
