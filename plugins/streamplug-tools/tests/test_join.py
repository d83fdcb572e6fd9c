from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_tools import Columns, Output, inspect, join, join_by_key, sort_keys
from streamplug_tools.verification import verify

from streamplug.errors import ConfigError
from streamplug.stream import Stream


def to(place, **options):
    return Output(place, **{"size_limit": 500, "processes": 0, **options})


@pytest.fixture
def others(tmp_path, write):
    """Two sets with the even, and the first, of some numbers, in other orders."""
    evens = write(
        tmp_path / "evens",
        range(198, -1, -2),
        {"id": "int", "half": "str"},
        lambda n: {"id": n, "half": str(n // 2)},
    )
    early = write(
        tmp_path / "early",
        [n * 37 % 101 for n in range(101)],
        {"id": "int32", "square": "int"},
        lambda n: {"id": n, "square": n * n},
        compression="gz",
    )
    return evens, early


@pytest.mark.parametrize("small", [False, True])
def test_columns_of_samples_with_one_key_come_together(
    source, others, tmp_path, read, monkeypatch, small
):
    if small:
        monkeypatch.setattr(sort_keys, "_MAX_RUN_BYTES", 1000)
    written = join([source, *others], to(tmp_path / "out"), "id")
    found = read(tmp_path / "out")
    expected = list(range(0, 101, 2))
    assert written.samples == len(expected)
    assert list(found) == ["half", "id", "name", "score", "square", "vector", "x"]
    assert found["id"].tolist() == expected
    assert found["half"] == [str(n // 2) for n in expected]
    assert found["square"].tolist() == [n * n for n in expected]
    assert found["name"] == [f"name {n % 7}" for n in expected]


def test_several_samples_of_the_first_may_have_one_key(source, tmp_path, write, read):
    names = write(
        tmp_path / "names",
        range(6),
        {"name": "str", "number": "int"},
        lambda n: {"name": f"name {n}", "number": n},
    )
    join([source, names], to(tmp_path / "out"), "name", columns=Columns(select=["id", "number"]))
    found = read(tmp_path / "out")
    expected = [n for n in range(200) if n % 7 < 6]
    assert found["id"].tolist() == expected
    assert found["number"].tolist() == [n % 7 for n in expected]


def test_columns_are_renamed_and_encoded(source, others, tmp_path, read):
    columns = Columns(rename={"half": "h"}, encodings={"h": "bytes"}, drop=["x", "vector", "name"])
    join([source, others[0]], to(tmp_path / "out"), "id", columns=columns)
    found = read(tmp_path / "out")
    assert list(found) == ["h", "id", "score"]
    assert found["h"][:2] == [b"0", b"1"]


def test_what_cannot_be_joined_is_refused(source, others, tmp_path, write):
    out = to(tmp_path / "out")
    twice = write(
        tmp_path / "twice",
        [1, 2, 3, 199, 199],
        {"id": "int", "n": "int"},
        lambda n: {"id": n, "n": n},
    )
    for sources, by, columns, said in (
        ([source], "id", Columns(), "give two data sets or more"),
        ([source, source], "id", Columns(), "both have a column 'name'; drop it"),
        ([source, twice], "id", Columns(), "samples 3 and 4 both have .*199.*streamplug dedup"),
        ([source, others[0]], "id", Columns(drop=["half"]), "no column is taken of .*evens"),
        ([source, others[0]], "id", Columns(select=["halves"]), "Did you mean 'half'"),
        ([source, others[0]], "id", Columns(encodings={"halves": "str"}), "Did you mean 'half'"),
        (
            [source, others[0]],
            "id",
            Columns(drop=["name"], rename={"name": "n"}),
            "rename=.'name'.: column 'name' is left out",
        ),
        (
            [source, others[0]],
            "id",
            Columns(rename={"name": "half"}),
            "two columns would be called 'half'; rename or drop one of them",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            join(sources, out, by, columns=columns)
    texts = write(
        tmp_path / "texts", range(3), {"id": "str", "n": "int"}, lambda n: {"id": str(n), "n": n}
    )
    with pytest.raises(ConfigError, match="the keys of the sets cannot be compared"):
        join([source, texts], out, "id")
    assert not (tmp_path / "out").exists()


def test_samples_whose_key_is_none_have_no_partner(tmp_path, write, read):
    ids = [3, None, 1, None, 2]
    columns = {"user id": "json", "n": "int"}
    one = write(tmp_path / "one", range(5), columns, lambda n: {"user id": ids[n], "n": n})
    other = write(
        tmp_path / "other",
        range(5),
        {"user id": "json", "m": "int"},
        lambda n: {"user id": ids[n], "m": n * n},
    )
    join([one, other], to(tmp_path / "out"), "user id")
    found = read(tmp_path / "out")
    assert (found["n"].tolist(), found["m"].tolist()) == ([0, 2, 4], [0, 4, 16])


def test_a_left_join_keeps_samples_without_a_partner(source, others, tmp_path, read):
    columns = Columns(encodings={"half": "json", "square": "json"})
    written = join([source, *others], to(tmp_path / "out"), "id", how="left", columns=columns)
    found = read(tmp_path / "out")
    assert written.samples == 200
    assert found["id"].tolist() == list(range(200))
    assert found["half"] == [str(n // 2) if n % 2 == 0 else None for n in range(200)]
    assert found["square"] == [n * n if n <= 100 else None for n in range(200)]
    assert found["name"] == [f"name {n % 7}" for n in range(200)]


def test_a_left_join_without_gaps_needs_no_none(source, others, tmp_path, read):
    join([others[0], source], to(tmp_path / "out"), "id", how="left")
    found = read(tmp_path / "out")
    assert found["id"].tolist() == list(range(198, -1, -2))
    assert found["name"] == [f"name {n % 7}" for n in found["id"]]


def test_a_left_join_names_encodings_that_store_none(source, others, tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"sample 1 of .*source has no partner in .*evens, and column 'half' "
        r"\(str\) of format mds cannot store None: pass --columns half:json",
    ):
        join([source, others[0]], to(tmp_path / "out"), "id", how="left")
    with pytest.raises(ConfigError, match="how='right': expected 'inner' or 'left'"):
        join([source, others[0]], to(tmp_path / "out"), "id", how="right")
    assert not (tmp_path / "out").exists()


def test_a_left_join_as_parquet_writes_nulls(source, others, tmp_path, read):
    pytest.importorskip("streamplug_parquet")
    out = to(tmp_path / "out", format="parquet", size_limit="1mb")
    chosen = Columns(select=["id", "square"])
    with pytest.raises(ConfigError, match=r"pass --columns square:int64\?"):
        join([source, others[1]], out, "id", how="left", columns=chosen)
    columns = Columns(select=["id", "square"], encodings={"square": "int64?"})
    join([source, others[1]], out, "id", how="left", columns=columns)
    assert list(read(tmp_path / "out")["square"]) == [
        n * n if n <= 100 else None for n in range(200)
    ]


def test_files_are_named_themselves_and_not_by_their_directory(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("id,text\n1,x\n2,y\n")
    sources = [Stream(remote=str(tmp_path / f"{name}.csv"), format="csv") for name in "ab"]
    with pytest.raises(ConfigError) as caught:
        join(sources, to(tmp_path / "out", format="mds"), "id")
    named = f"{tmp_path / 'a.csv'} and {tmp_path / 'b.csv'} both have a column 'text'"
    assert str(caught.value).startswith(named)
    with pytest.raises(ConfigError, match="format plain-csv can only be read; name another"):
        join(sources, to(tmp_path / "out"), "id")
    assert inspect(sources[0]).url == verify(sources[0]).url == str(tmp_path / "a.csv")
    whole = Stream(remote=str(tmp_path), format="csv")
    assert inspect(whole).url == verify(whole).url == str(tmp_path)


INTEGERS = st.integers(-5, 5) | st.sampled_from([2**53, 2**53 + 1, 2**70])
FLOATS = st.sampled_from([float(n) for n in range(-5, 5)] + [0.5, 2.0**53, float("inf")])


@given(
    keys=st.lists(INTEGERS | st.none()) | st.lists(FLOATS) | st.lists(INTEGERS | FLOATS),
    others=st.lists(INTEGERS, unique=True)
    | st.lists(FLOATS, unique=True)
    | st.lists(INTEGERS | FLOATS, unique=True)
    | st.lists(INTEGERS),
    block=st.integers(1, 4),
    limit=st.sampled_from([100, 1 << 20]),
)
def test_keys_match_as_those_of_a_dict(tmp_path_factory, keys, others, block, limit):
    folders = [tmp_path_factory.mktemp("keys") for _ in range(3)]

    def in_order(values, folder):
        starts = range(0, len(values), 3)
        batches = [(np.arange(at, min(at + 3, len(values))), values[at : at + 3]) for at in starts]
        return sort_keys.sort_by_key(batches, folder)

    with (
        mock.patch.object(sort_keys, "_MAX_RUN_BYTES", limit),
        mock.patch.object(sort_keys, "_KEYS_PER_BLOCK", block),
        mock.patch.object(sort_keys, "_KEYS_PER_RECORD", block),
    ):
        sorts = [in_order(keys, folders[0]), in_order(others, folders[1])]
        sizes = [len(keys), len(others)]
        if len(set(others)) < len(others):
            with pytest.raises(ConfigError, match=r"^b: samples \d+ and \d+ both have the key"):
                join_by_key.match_sorted_keys(sorts, sizes, ["a", "b"], folders[2])
            return
        [matches] = join_by_key.match_sorted_keys(sorts, sizes, ["a", "b"], folders[2])
    numbers = {key: number for number, key in enumerate(others)}
    assert matches[: len(keys)].tolist() == [numbers.get(key, -1) for key in keys]
