"""Shards of text go both ways between streamplug and mosaicml-streaming, down to their bytes."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_text import CSVWriter, JSONWriter, TSVWriter, XSVWriter

from streamplug import StreamingDataset

# mosaicml-streaming leaves the closing of files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

OURS = {
    "JSONWriter": JSONWriter,
    "CSVWriter": CSVWriter,
    "TSVWriter": TSVWriter,
    "XSVWriter": XSVWriter,
}
EXAMPLES = 60

ENCODINGS = st.sampled_from(["str", "int", "float"])
INTEGERS = st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([10**40, -(2**63) - 1])
FLOATS = st.floats() | st.floats(width=32) | st.floats().map(np.float64)


@st.composite
def cases(draw, kind):
    """Draw the writer's arguments, and samples that it takes."""
    marks = {}
    if kind == "XSVWriter":
        marks["separator"] = draw(st.sampled_from(["|", ";", " ", "::", "\t", "流", "-"]))
    if kind == "JSONWriter":
        marks["newline"] = draw(st.sampled_from(["\n", "\r\n", " ", "", "\n\n"]))
    else:
        marks["newline"] = draw(st.sampled_from(["\n", "\r\n", "\0", "<br>"]))
    characters = st.characters(exclude_categories=["Cs"])
    refused = ""
    if kind == "JSONWriter":
        characters |= st.characters(categories=["Cs"])
    else:
        # No part of a mark: what two of them make together is for the tests of the plugin.
        refused = {"CSVWriter": ",", "TSVWriter": "\t"}.get(kind) or marks["separator"]
        refused += marks["newline"]
    texts = st.text(characters, max_size=12).map(lambda text: "".join(set(text) - set(refused)))
    numbers = INTEGERS.filter(lambda value: not set(str(value)) & set(refused))
    ratios = FLOATS.filter(lambda value: not set(str(float(value))) & set(refused))
    plain = st.characters(exclude_categories=["Cs"])
    names = st.text(plain, max_size=6).map(lambda text: "".join(set(text) - set(refused)))
    columns = draw(st.dictionaries(names, ENCODINGS, min_size=1, max_size=4))
    values = {"str": texts, "int": numbers, "float": ratios}
    sample = st.fixed_dictionaries({name: values[spec] for name, spec in columns.items()})
    samples = draw(st.lists(sample, min_size=1, max_size=20))
    arguments = {
        "columns": columns,
        "compression": draw(st.sampled_from([None, None, "zstd:3", "bz2", "br:1", "snappy"])),
        "hashes": draw(st.sampled_from([[], ["sha1"], ["md5", "xxh64"]])),
        # Large enough for any sample: there, they write an empty shard, and we refuse.
        "size_limit": draw(st.sampled_from([None, 1500, "2kb", 1 << 26])),
        **marks,
    }
    return arguments, samples


def write(writer, folder, arguments, samples):
    with writer(out=str(folder), **arguments) as out:
        for sample in samples:
            out.write(sample)


def write_batch(writer, folder, arguments, samples):
    with writer(out=str(folder), **arguments) as out:
        out.write_batch({name: [s[name] for s in samples] for name in arguments["columns"]})


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def read_by_them(mosaic, folder):
    found = []
    for entry in json.loads((folder / "index.json").read_text())["shards"]:
        reader = mosaic.base.format.reader_from_json(str(folder), "", entry)
        for raw, packed in reader.file_pairs:
            if packed is not None:
                data = (folder / packed.basename).read_bytes()
                data = mosaic.base.compression.decompress(entry["compression"], data)
                (folder / raw.basename).write_bytes(data)
        found += [reader[i] for i in range(len(reader))]
    return found


def same(ours, theirs):
    """Say whether samples are equal, with one NaN like another, types and order of columns too."""

    def plain(sample):
        return [
            (name, type(v).__name__, "nan" if isinstance(v, float) and math.isnan(v) else repr(v))
            for name, v in sample.items()
        ]

    return list(map(plain, ours)) == list(map(plain, theirs))


@pytest.mark.parametrize("kind", OURS)
def test_files_are_equal_and_read_by_either(mosaic, kind):
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(cases(kind))
    def test(case):
        arguments, samples = case
        with tempfile.TemporaryDirectory() as root:
            ours, batch, theirs = (Path(root, name) for name in ("ours", "batch", "theirs"))
            write(OURS[kind], ours, arguments, samples)
            write_batch(OURS[kind], batch, arguments, samples)
            write(getattr(mosaic, kind), theirs, arguments, samples)
            assert files_of(ours) == files_of(theirs)
            assert files_of(batch) == files_of(theirs)
            found = list(StreamingDataset(local=str(theirs)))
            dataset = StreamingDataset(local=str(ours))
            one_by_one = [dataset[i] for i in range(len(samples))]
            assert same(found, read_by_them(mosaic, ours))
            assert same(one_by_one, found)
            assert [sorted(sample) for sample in found] == [sorted(s) for s in samples]

    test()


@pytest.mark.parametrize("kind", OURS)
def test_the_empty_shard_before_a_large_sample_is_read(mosaic, kind, tmp_path):
    marks = {"separator": "|"} if kind == "XSVWriter" else {}
    samples = [{"text": "long" * 50}, {"text": "short"}]
    arguments = {"columns": {"text": "str"}, "size_limit": 100, **marks}
    write(getattr(mosaic, kind), tmp_path / "set", arguments, samples)
    shards = json.loads((tmp_path / "set" / "index.json").read_text())["shards"]
    assert [shard["samples"] for shard in shards] == [0, 1, 1]
    assert list(StreamingDataset(local=str(tmp_path / "set"))) == samples
    write(OURS[kind], tmp_path / "ours", arguments, samples)  # without the empty shard
    assert list(StreamingDataset(local=str(tmp_path / "ours"))) == samples


@pytest.mark.parametrize("kind", OURS)
def test_whole_data_sets_are_read_by_them(mosaic, kind, tmp_path):
    columns = {"id": "int", "text": "str", "ratio": "float"}
    marks = {"separator": "|"} if kind == "XSVWriter" else {}
    samples = [{"id": i, "text": f"naïve {i}", "ratio": i / 7} for i in range(200)]
    write(OURS[kind], tmp_path / "set", {"columns": columns, "size_limit": 900, **marks}, samples)
    theirs = mosaic.LocalDataset(str(tmp_path / "set"))
    assert [theirs[i] for i in range(200)] == samples
    assert list(StreamingDataset(local=str(tmp_path / "set"))) == samples
