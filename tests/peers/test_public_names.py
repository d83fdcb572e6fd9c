"""Each public name of mosaicml-streaming is here, and equal; or on the page for movers."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import streamplug_mosaic as names
from streamplug_mosaic.differences import ALWAYS, EXCEPTIONS, MISSING, list_names
from streamplug_mosaic.differences import find_entry as entry_of_module

# Theirs leaves files open, and has the collector close them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
HERE = Path(__file__).parent
tools = runpy.run_path(str(HERE / "public_names.py"))
mistakes = runpy.run_path(str(HERE / "misuses.py"))
# The attributes that a row of the page is about, by the words in it.
TOLD = {
    "StreamingDataset.predownload": "`predownload` of a data set",
    "MDSWriter.new_samples": "`new_samples` of a writer",
    "get_item(idx=)": "`get_item` of well-known data sets",
}


def find_entry(name):
    """Return the entry of the page that is about a name that is not here, or not equal."""
    name = "get_item(idx=)" if name.endswith(".get_item(idx=)") else name
    if name in TOLD:
        return next(each.what for each in ALWAYS if TOLD[name] in each.what)
    member = next((entry for entry in MISSING if name in list_names(entry)), None)
    return member or entry_of_module(name)


@pytest.fixture(scope="module")
def definitions(mosaic):
    return tools["different_definitions"](mosaic, names)


def write(side, name, place, **more):
    settings = {"columns": {"n": "int", "text": "str"}, "size_limit": 400, "hashes": ["sha1"]}
    with getattr(side, name)(out=str(place), **settings, **more) as writer:
        for n in range(40):
            writer.write({"n": n, "text": "x" * n})
    return writer


WRITERS = {
    "MDSWriter": {},
    "JSONWriter": {},
    "CSVWriter": {},
    "TSVWriter": {},
    "XSVWriter": {"separator": ";"},
}


@pytest.fixture(scope="module")
def made(mosaic, tmp_path_factory):
    """One of each class, of both sides, after an epoch."""
    found = {}
    for side, of in (("theirs", mosaic), ("ours", names)):
        place = tmp_path_factory.mktemp(side)
        writers = {name: write(of, name, place / name, **more) for name, more in WRITERS.items()}
        streams = [
            of.Stream(remote=str(place / name), local=str(place / f"near-{name}"), proportion=share)
            for name, share in (("MDSWriter", 0.25), ("JSONWriter", 0.75))
        ]
        dataset = of.StreamingDataset(
            streams=streams,
            batch_size=4,
            shuffle=True,
            epoch_size=50,
            cache_limit="1mb",
            num_canonical_nodes=2,
        )
        seen = [sample["n"] for sample in dataset]
        found[side] = {
            **writers,
            "StreamingDataset": dataset,
            "Stream": streams[0],
            "Reader": dataset.shards[0],
            "Reader of text": dataset.shards[-1],
            "LocalDataset": of.LocalDataset(str(place / "MDSWriter")),
            "StreamingDataLoader": of.StreamingDataLoader(dataset, batch_size=4),
            "seen": seen,
            "place": str(place),
        }
    return found["theirs"], found["ours"]


@pytest.fixture(scope="module")
def attributes(made):
    theirs, ours = made
    places = theirs["place"], ours["place"]
    found = set()
    for name in (
        *WRITERS,
        "StreamingDataset",
        "Stream",
        "Reader",
        "Reader of text",
        "LocalDataset",
    ):
        shown = "MDSWriter" if name in WRITERS else name.removesuffix(" of text")
        pair = theirs[name], ours[name]
        found |= tools["different_attributes"](shown, *pair, places)
        found |= {
            f"{shown}.{member}"
            for member in dir(type(theirs[name]))
            if not member.startswith("_") and not hasattr(ours[name], member)
        }
    return found


def test_what_differs_is_on_the_page(definitions, attributes):
    missing = [name for name in sorted(definitions | attributes) if find_entry(name) is None]
    assert not missing, "\n".join(missing)


def test_what_is_on_the_page_differs(definitions, attributes):
    different = definitions | attributes
    for entry in MISSING:
        if "simulation" in entry:
            continue  # a package of its own, which is not installed with it
        for name in list_names(entry):
            about = [each for each in different if each == name or entry_of_module(each) == entry]
            assert about, f"{name} is there, and equal"
    for name in TOLD:
        assert any(each.endswith(name) for each in different)


def test_values_are_equal_too(made):
    theirs, ours = made
    assert theirs["seen"] == ours["seen"]
    for name in WRITERS:
        sample = {"n": 5, "text": "five"}
        assert theirs[name].encode_sample(sample) == ours[name].encode_sample(sample)
        assert theirs[name].get_config() == ours[name].get_config()
    pair = theirs["StreamingDataset"], ours["StreamingDataset"]
    for epoch in range(3):
        for stream in (None, 0, 1):
            for left, right in zip(*(each.resample_streams(epoch, stream) for each in pair)):
                assert left.tolist() == right.tolist()
    for number, shards in enumerate(zip(*(each.shards for each in pair))):
        for dataset in pair:
            dataset.prepare_shard(number)
        for member in ("get_raw_size", "get_zip_size", "get_max_size"):
            assert getattr(shards[0], member)() == getattr(shards[1], member)()
        assert [s["n"] for s in shards[0]] == [s["n"] for s in shards[1]]
        files = [
            [
                [file and (file.basename, file.bytes, file.hashes) for file in pair]
                for pair in shard.file_pairs
            ]
            for shard in shards
        ]
        assert files[0] == files[1]


def test_shards_come_and_go_as_there(made):
    pair = made[0]["StreamingDataset"], made[1]["StreamingDataset"]
    for change in (
        lambda dataset: dataset.evict_shard(2),
        lambda dataset: dataset.evict_shard(int(dataset.num_shards) - 1),
        lambda dataset: dataset.prepare_shard(2),
        lambda dataset: dataset.prepare_shard(2, blocking=False),
    ):
        for dataset in pair:
            change(dataset)
        assert pair[0].cache_usage == pair[1].cache_usage


@pytest.mark.parametrize("world", [(1, 1, 1), (2, 2, 3), (1, 4, 2)])
@pytest.mark.parametrize("steps", [0, 1])
def test_work_is_told_as_there(mosaic, made, world, steps):
    theirs, ours = made
    done = 4 * world[0] * world[1] * steps
    expected = mosaic.base.batching.generate_work(
        "random", theirs["StreamingDataset"], mosaic.base.world.World(*world, 0), 1, done
    )
    found = names.generate_work("random", ours["StreamingDataset"], names.World(*world, 0), 1, done)
    assert found.tolist() == expected.tolist()


def test_arrays_of_samplings_are_as_there(mosaic):
    sizes = np.array([5, 1, 9, 3])
    for choose in (0, 3, 18, 25):
        for epoch, use in ((0, True), (3, True), (3, False)):
            arguments = (sizes, choose, 2, 7, epoch, use)
            theirs = mosaic.base.sampling.get_sampling(*arguments)
            assert names.get_sampling(*arguments).tolist() == theirs.tolist()


def test_places_are_told_as_there(mosaic):
    for arguments in ((1, 1, 1, 0), (2, 4, 3, 17), (3, 2, 1, 5)):
        theirs, ours = mosaic.base.world.World(*arguments), names.World(*arguments)
        assert ours.to_json() == theirs.to_json()
        for by in (1, 2) if theirs.num_ranks % 2 == 0 else (1,):
            assert ours.replicate(by).to_json() == theirs.replicate(by).to_json()
    assert names.World.detect().to_json() == mosaic.base.world.World.detect().to_json()


SIZES = [
    "5", "5b", "5kb", "1.11eb", "0.5mb", " 2 GB ", "1e3kb", "-1kb", 7, 7.9, 0.5 * 1024, True,
    "", "kb", "b", "1 xb", "5.5", "1e9", "nankb", "5k", "100m", "1.5b", "2T", 500.0, "٣", "5 kb b",
]  # fmt: skip


@pytest.mark.parametrize("parse", ["bytes_to_int", "number_abbrev_to_int"])
@pytest.mark.parametrize("given", [*SIZES, None, [5], "infkb", "infk"], ids=repr)
def test_sizes_are_read_as_there(mosaic, parse, given):
    try:
        expected = getattr(mosaic.base.util, parse)(given)
    except Exception as error:
        with pytest.raises(type(error)):
            getattr(names, parse)(given)
    else:
        found = getattr(names, parse)(given)
        assert (type(found), found) == (type(expected), expected)


def test_mistakes_raise_what_they_raise_there_or_are_on_the_page(mosaic, tmp_path_factory):
    theirs, ours = (
        mistakes["outcomes"](side, tmp_path_factory.mktemp(name))
        for name, side in zip(("theirs", "ours"), mistakes["spaces"](mosaic, names))
    )
    told = {each.what: each for each in EXCEPTIONS}
    for what, error in theirs.items():
        found = ours[what]
        equal = found is error if found is None or error is None else issubclass(found, error)
        assert equal != (what in told), f"{what}: {error} -> {found}"
        if not equal:
            assert told[what].theirs == f"`{error.__name__}`"
            assert told[what].ours.startswith("Nothing" if found is None else f"`{found.__name__}`")
    assert told.keys() <= theirs.keys()
