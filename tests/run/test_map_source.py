"""Samples of a data set by number: as a map-style data set of torch, pickled, and with other readers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, StreamingDataset
from tests.start_methods import SPAWN

SIZES = (37, 20)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("streams")
    for number, size in enumerate(SIZES):
        with MDSWriter(out=top / str(number), columns={"n": "int"}, size_limit=200) as out:
            out.write_batch({"n": np.arange(size) + 100 * number})
    return [str(top / str(number)) for number in range(len(SIZES))]


EXPECTED = [*range(37), *range(100, 120)]


def make(folders, cls=StreamingDataset, **options):
    return cls(streams=[Stream(local=folder) for folder in folders], **options)


def numbers(samples):
    return [int(sample["n"]) for sample in samples]


@pytest.mark.parametrize("index", [1.7, np.float32(2), "3"])
def test_samples_are_chosen_by_whole_numbers(folders, index):
    with pytest.raises(TypeError):
        make(folders).as_source()[index]


def test_samples_have_the_numbers_of_the_data_set(folders):
    dataset = make(folders, shuffle=True, batch_size=4)
    source = dataset.as_source()
    assert len(source) == len(EXPECTED)
    assert numbers(source) == EXPECTED
    assert numbers([source[5], source[np.int64(40)], source[-1]]) == [5, 103, 119]
    assert numbers(source.__getitems__([40, 0, 40])) == [103, 0, 103]
    assert source.__getitems__([]) == []
    with pytest.raises(IndexError):
        source[len(EXPECTED)]
    use = dataset.explain(2, epoch=1)[0]
    assert source[use.sample] == dataset[use.sample]


def test_a_copy_is_the_same_source(folders):
    source = make(folders).as_source()
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source) == repr(make(folders, shuffle=True).as_source())
    assert repr(source) != repr(make(folders[:1]).as_source())
    assert numbers(copy) == EXPECTED


class Doubled(StreamingDataset):
    """A data set that changes samples."""

    def __getitem__(self, at):
        return {"n": 2 * super().__getitem__(at)["n"]}


def test_a_data_set_that_changes_samples_does_it_here_too(folders):
    source = make(folders, Doubled).as_source()
    assert numbers(source.__getitems__([3, 40])) == [6, 206]
    assert numbers([source[3]]) == [6]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("workers", "method"), [(0, None), (2, "fork"), pytest.param(2, SPAWN, id="2-spawn")]
)
def test_loaders_of_torch_order_it_themselves(folders, workers, method):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader  # noqa: TID251
    from torch.utils.data.distributed import DistributedSampler  # noqa: TID251

    source = make(folders).as_source()
    options = {"batch_size": 8, "num_workers": workers, "multiprocessing_context": method}
    assert [n for b in DataLoader(source, **options) for n in b["n"].tolist()] == EXPECTED
    if method == "spawn":  # takes seconds to start
        return
    generator = torch.Generator().manual_seed(3)
    shuffled = DataLoader(source, shuffle=True, generator=generator, **options)
    seen = [n for batch in shuffled for n in batch["n"].tolist()]
    assert seen != EXPECTED
    assert sorted(seen) == EXPECTED
    if workers:
        return
    parts = [
        DataLoader(source, sampler=DistributedSampler(source, 3, rank), **options)
        for rank in range(3)
    ]
    assert sorted(n for part in parts for b in part for n in b["n"].tolist()) == EXPECTED
