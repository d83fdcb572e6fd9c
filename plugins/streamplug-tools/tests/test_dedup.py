from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_tools import Output, dedup, sort_keys

from streamplug.errors import ConfigError


def to(place, **options):
    return Output(place, **{"size_limit": 500, "processes": 0, **options})


@pytest.mark.parametrize("small", [False, True])
def test_the_first_sample_of_each_key_stays(source, tmp_path, read, monkeypatch, small):
    if small:
        monkeypatch.setattr(sort_keys, "_MAX_RUN_BYTES", 1000)
    written = dedup(source, to(tmp_path / "out"), "name")
    assert written.samples == 7
    assert read(tmp_path / "out")["id"].tolist() == list(range(7))


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=30))
def test_keys_are_distinct_and_samples_without_one_stay(tmp_path_factory, keys):
    from streamplug import StreamingDataset, Writer

    home = tmp_path_factory.mktemp("dedup")
    with Writer(columns={"key": "json", "n": "int"}, out=home / "in") as writer:
        for n, key in enumerate(keys):
            writer.write({"key": key, "n": n})
    dedup(home / "in", to(home / "out"), "key")
    expected = [n for n, key in enumerate(keys) if key is None or key not in keys[:n]]
    assert [sample["n"] for sample in StreamingDataset(local=str(home / "out"))] == expected


def test_several_sources_are_one(source, tmp_path, read):
    dedup([source, source], to(tmp_path / "out"), "(id, name)")
    assert read(tmp_path / "out")["id"].tolist() == list(range(200))


def test_keys_that_cannot_be_compared_are_refused(source, tmp_path):
    with pytest.raises(ConfigError, match="keys cannot be sorted"):
        dedup(source, to(tmp_path / "out"), "id if id % 2 else name")
    with pytest.raises(ConfigError, match="nmae"):
        dedup(source, to(tmp_path / "out"), "nmae")
    with pytest.raises(ConfigError):
        dedup(source, to(tmp_path / "out"), "vector")
    dedup(source, to(tmp_path / "out"), "xxh64(x)")
    assert not list(tmp_path.glob("*.tmp"))
