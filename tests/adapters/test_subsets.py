"""What torch's map-style tools make of a data set: every sample once, or an error."""

from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402, TID251
    DataLoader,
    Subset,
    default_collate,
    random_split,
)

from streamplug import MDSWriter, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from streamplug.run import hints  # noqa: E402

SIZE = 101


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": np.arange(SIZE)})
    return str(out)


class Doubled(StreamingDataset):
    def __getitem__(self, at):
        return {"n": 2 * super().__getitem__(at)["n"]}


def split(dataset):
    return random_split(dataset, [0.9, 0.1], generator=torch.Generator().manual_seed(1))


def read_one_by_one(subset):
    return [int(sample["n"]) for sample in subset]


def read_batches(subset, workers=0):
    loader = DataLoader(subset, batch_size=8, num_workers=workers)
    return [n for batch in loader for n in batch["n"].tolist()]


WAYS = pytest.mark.parametrize(
    "read", [read_one_by_one, read_batches, lambda subset: read_batches(subset, 2)]
)


@WAYS
@pytest.mark.parametrize("cls", [StreamingDataset, Doubled])
@pytest.mark.parametrize("options", [{"batch_size": 32}, {"epoch_size": 150}])
def test_a_padded_data_set_is_not_split(folder, options, cls, read):
    parts = split(cls(local=folder, **options))
    with pytest.raises(ConfigError, match=r"as_source\(\)"):
        print([read(subset) for subset in parts])


@WAYS
@pytest.mark.parametrize("cls", [StreamingDataset, Doubled])
@pytest.mark.parametrize("make", [lambda dataset: dataset, StreamingDataset.as_source])
def test_each_sample_is_in_one_part(folder, make, cls, read):
    dataset = cls(local=folder)
    parts = [read(subset) for subset in split(make(dataset))]
    assert list(map(len, parts)) == [91, 10]
    assert sorted(parts[0] + parts[1]) == [dataset[i]["n"] for i in range(SIZE)]


@pytest.mark.parametrize("world", [World(), World(1, 2)])
def test_a_subset_of_a_part_of_an_epoch_is_read_with_a_warning(folder, world, caplog, monkeypatch):
    monkeypatch.setattr(hints, "_logged", set())
    dataset = StreamingDataset(local=folder, epoch_size=50, batch_size=10, world=world)
    with caplog.at_level(logging.WARNING, "streamplug"):
        assert read_batches(Subset(dataset, range(95, 101))) == [*range(95, 101)]
        assert read_batches(Subset(dataset, [3])) == [3]
    [record] = caplog.records
    assert f"len is {len(dataset)}" in record.message
    assert "as_source()" in record.message


def test_a_subset_of_all_is_read_without_a_warning(folder, caplog, monkeypatch):
    monkeypatch.setattr(hints, "_logged", set())
    subset = Subset(StreamingDataset(local=folder, batch_size=8), range(3))
    assert default_collate(subset.__getitems__([2, 0]))["n"].tolist() == [2, 0]
    assert not caplog.records
