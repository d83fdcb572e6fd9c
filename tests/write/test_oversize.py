from __future__ import annotations

import json

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset, Writer
from streamplug.errors import ConfigError, EncodeError

COLUMNS = {"id": "int", "text": "str"}
LARGE = {"id": 1, "text": "x" * 2000}


def small(number):
    return {"id": number, "text": "a" * 20}


def shards(place):
    return [shard["samples"] for shard in json.loads((place / "index.json").read_text())["shards"]]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if "size_limit" in record.message]


@pytest.mark.parametrize("batched", [False, True])
def test_a_sample_above_the_limit_has_a_shard_of_its_own(tmp_path, caplog, batched):
    samples = [small(0), LARGE, LARGE, small(3), small(4)]
    with MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=1000) as writer:
        if batched:
            writer.write_batch({name: [sample[name] for sample in samples] for name in COLUMNS})
        else:
            for sample in samples:
                writer.write(sample)
    assert shards(tmp_path) == [1, 1, 1, 2]
    assert StreamingDataset(local=str(tmp_path))[:] == samples
    [warning] = warnings(caplog)
    assert "sample 1 takes 2016 bytes, more than size_limit=1000" in warning
    assert "raise size_limit" in warning


@pytest.mark.parametrize("batched", [False, True])
def test_the_first_sample_may_be_above_the_limit(tmp_path, batched):
    with MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=1000) as writer:
        if batched:
            writer.write_batch({"id": [1, 2], "text": ["x" * 2000, "b"]})
        else:
            writer.write(LARGE)
            writer.write(small(2))
    assert shards(tmp_path) == [1, 1]  # no shard without samples before them
    assert len(StreamingDataset(local=str(tmp_path))[0]["text"]) == 2000


def test_single_samples_and_batches_above_the_limit_take_turns(tmp_path):
    with MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=1000) as writer:
        writer.write(small(0))
        writer.write_batch({"id": [1, 2], "text": ["x" * 2000, "y" * 3000]})
        writer.write(LARGE)
        writer.write(small(4))
    assert shards(tmp_path) == [1, 1, 1, 1, 1]
    assert [sample["id"] for sample in StreamingDataset(local=str(tmp_path))] == [0, 1, 2, 1, 4]


def test_a_file_of_another_format_also_holds_what_is_above_the_limit(tmp_path):
    pytest.importorskip("streamplug_text")
    with Writer(columns=COLUMNS, out=tmp_path, format="jsonl", size_limit=100) as writer:
        for sample in (small(0), LARGE, small(2)):
            writer.write(sample)
    assert shards(tmp_path) == [1, 1, 1]


@pytest.mark.parametrize("limit", [100_000, None])
def test_what_no_file_can_hold_is_refused_and_the_others_go_on(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("streamplug.builtin.mds.MDSShardWriter.max_size", 1500)
    with MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=limit) as writer:
        writer.write(small(0))
        with pytest.raises(
            EncodeError, match=r"sample 1 takes 2016 bytes, .* at most 1500 bytes; spl"
        ):
            writer.write(LARGE)
        with pytest.raises(EncodeError, match="sample 3 takes 2016 bytes"):
            writer.write_batch({"id": [1, 2, 3], "text": ["a", "b", "x" * 2000]})
        writer.write_batch({"id": [1, 2], "text": ["a", "b"]})
    assert [sample["id"] for sample in StreamingDataset(local=str(tmp_path))] == [0, 1, 2]


@pytest.mark.parametrize("limit", [1e3, np.float64(1000)])
def test_a_limit_may_be_a_whole_float(tmp_path, limit):
    with MDSWriter(columns={"id": "int"}, out=tmp_path, size_limit=limit) as writer:
        for number in range(200):
            writer.write({"id": number})
    assert max(path.stat().st_size for path in tmp_path.glob("*.mds")) <= 1000
    assert json.loads((tmp_path / "index.json").read_text())["shards"][0]["size_limit"] == 1000


def test_keys_that_are_no_columns_are_refused_unless_they_are_to_be_ignored(tmp_path):
    sample = {"text": "a", "id": 1, "more": 2}
    writer = MDSWriter(columns=COLUMNS, out=tmp_path / "strict")
    with pytest.raises(EncodeError, match=r"unknown: \['more'\]"):
        writer.write(sample)
    with MDSWriter(columns=COLUMNS, out=tmp_path / "lenient", extra_keys="ignore") as writer:
        writer.write(sample)
        writer.write_batch({"more": [1, 2], "id": [2, 3], "text": ["b", "c"]})
        writer.write({"id": 4, "text": "d"})
        with pytest.raises(EncodeError, match=r"missing: \['text'\]"):
            writer.write({"id": 5, "more": 6})
        with pytest.raises(EncodeError, match=r"missing: \['text'\]"):
            writer.write({"id": 5, "more": 6, "other": 7})
        with pytest.raises(EncodeError, match="a sample maps column names to values"):
            writer.write([1, "a"])
    found = [(s["id"], s["text"]) for s in StreamingDataset(local=str(tmp_path / "lenient"))]
    assert found == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    with pytest.raises(ConfigError, match="extra_keys='drop': choose one of error, ignore"):
        MDSWriter(columns=COLUMNS, out=tmp_path / "other", extra_keys="drop")


def test_a_config_says_it_too(tmp_path):
    config = {"writer": {"columns": COLUMNS, "size_limit": 1e6, "extra_keys": "ignore"}}
    with Writer.from_config(config, out=tmp_path) as writer:
        writer.write({"id": 1, "text": "a", "more": 2})
    shard = json.loads((tmp_path / "index.json").read_text())["shards"][0]
    assert (shard["samples"], shard["size_limit"]) == (1, 1_000_000)


def test_writers_of_text_ignore_keys_too(tmp_path):
    pytest.importorskip("streamplug_text")
    from streamplug_text import CSVWriter, JSONWriter

    for number, cls in enumerate((CSVWriter, JSONWriter)):
        place = tmp_path / str(number)
        with cls(columns=COLUMNS, out=place, extra_keys="ignore") as writer:
            writer.write({"id": 1, "text": "a", "more": 2})
        assert StreamingDataset(local=str(place))[0] == {"id": 1, "text": "a"}
