"""A misspelt keyword argument is told with the one that was meant."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import streamplug
from streamplug import MDSWriter, Stream, Writer, dataset
from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError, UnknownKeywordError


@pytest.fixture
def place(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        for n in range(8):
            out.write({"n": n})
    return str(tmp_path / "set")


CALLS = [
    (lambda p: dataset.StreamingDataset(local=p, shufle=True), "StreamingDataset(shufle", "shuffle"),
    (lambda p: dataset.StreamingDataset(remot=p), "StreamingDataset(remot", "remote"),
    (lambda p: Stream(local=p, proporton=1), "Stream(proporton", "proportion"),
    (lambda p: Writer(out=p, columns={"n": "int"}, compresion="gz"), "Writer(compresion", "compression"),
    (lambda p: MDSWriter(out=p, colums={"n": "int"}), "MDSWriter(colums", "columns"),
    (lambda p: MDSWriter(ouT=p, columns={"n": "int"}), "MDSWriter(ouT", "out"),
    (lambda p: MDSWriter(out=p, columns={"n": "int"}, hash=[]), "MDSWriter(hash", "hashes"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "named", "meant"), CALLS, ids=[named for _, named, _ in CALLS])
def test_a_misspelt_keyword_is_told_with_the_one_that_was_meant(place, call, named, meant):
    with pytest.raises(UnknownKeywordError) as caught:
        call(place)
    assert str(caught.value) == f"{named}=…): no such argument. Did you mean {meant!r}?"
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ConfigError)


def test_a_keyword_like_no_other_is_told_with_all_that_there_are(place):
    with pytest.raises(TypeError, match=r"no such argument; there are .*batch_size, batching_meth"):
        dataset.StreamingDataset(local=place, xyz=1)


def test_the_loader_knows_the_keywords_of_torch_too(place):
    torch = pytest.importorskip("torch")
    data = streamplug.StreamingDataset(local=place, batch_size=4)
    for wrong, meant in (("num_worker", "num_workers"), ("trasform", "transform")):
        with pytest.raises(
            UnknownKeywordError, match=rf"^StreamingDataLoader\({wrong}=.*'{meant}'"
        ):
            streamplug.StreamingDataLoader(data, **{wrong: 0})
    given = {"timeout": 0, "generator": torch.Generator(), "multiprocessing_context": None}
    assert len(list(streamplug.StreamingDataLoader(data, drop_last=True, **given))) == 2
    with pytest.raises(UnknownKeywordError, match="'shuffle'"):
        streamplug.StreamingDataset(local=place, shufle=True)


class Popping(dataset.StreamingDataset):
    def __init__(self, **kwargs):
        self.mine = kwargs.pop("mine", None)
        super().__init__(**kwargs)


class Naming(dataset.StreamingDataset):
    def __init__(self, local, *, transforms=None):
        super().__init__(local=local)
        self.transforms = transforms


class Named(Stream):
    def __init__(self, **kwargs):
        object.__setattr__(self, "name", kwargs.pop("name", None))
        super().__init__(**kwargs)


def test_subclasses_take_what_they_took(place):
    assert Popping(local=place, mine=3).mine == 3
    assert Named(local=place, name="a").name == "a"
    assert Naming(place, transforms=4).transforms == 4
    with pytest.raises(UnknownKeywordError, match=r"^Popping\(shufle=.*'shuffle'"):
        Popping(local=place, mine=3, shufle=True)
    with pytest.raises(UnknownKeywordError, match=r"^Naming\(transform=.*'transforms'"):
        Naming(place, transform=4)


@suggest_keywords
def mean(first, *others, weight=1):
    """Return a mean."""
    return weight * (first + sum(others)) / (1 + len(others))


def test_functions_suggest_keywords_too():
    assert mean(1, 2, 6) == mean(first=3) == 3
    assert mean(1, weight=2) == 2
    assert (mean.__name__, mean.__doc__) == ("mean", "Return a mean.")
    assert list(inspect.signature(mean).parameters) == ["first", "others", "weight"]
    assert pickle.loads(pickle.dumps(mean)) is mean
    with pytest.raises(UnknownKeywordError, match=r"^mean\(wieght=…\): .* mean 'weight'\?$"):
        mean(wieght=2)  # no matter that `first` is missing
    with pytest.raises(UnknownKeywordError, match=r"no such argument; there are first, weight$"):
        mean(1, others=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        mean(weight=2)


def test_signatures_and_copies_are_as_before(place):
    assert "shuffle_algo" in inspect.signature(dataset.StreamingDataset).parameters
    assert list(inspect.signature(Stream).parameters)[:3] == ["remote", "local", "split"]
    assert "columns" in inspect.signature(MDSWriter).parameters
    stream = Stream(local=place)
    assert pickle.loads(pickle.dumps(stream)) == copy.deepcopy(stream) == stream
    data = pickle.loads(pickle.dumps(Popping(local=place)))
    assert [sample["n"] for sample in data] == list(range(8))
