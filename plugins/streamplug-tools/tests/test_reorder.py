from __future__ import annotations

import pickle
from decimal import Decimal
from operator import itemgetter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_testing import isolated_plugins
from streamplug_testing.http import serving
from streamplug_tools import (
    Columns,
    Output,
    convert,
    delete,
    process,
    select,
    shuffle,
    sort,
    sort_keys,
    split_by_fractions,
    split_by_size,
)
from streamplug_tools.row_access import cache_locally
from streamplug_tools.selection_order import OrderFiles, SequentialOrder, ShuffledOrder

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError, DataError, OutputExistsError
from streamplug.plugin import Provider


def to(place, **options):
    return Output(place, **{"size_limit": 500, "processes": 0, **options})


def test_columns_with_a_distribution_are_copied(tmp_path):
    texts = Provider("encoding", "text", "streamplug.builtin.encodings.plain:Str")
    engine = Provider("engine", "local", "streamplug_tools.local_engine:Local")
    with isolated_plugins(texts, engine):
        with MDSWriter(out=str(tmp_path / "set"), columns={"a": "test:text"}) as out:
            for value in ("b", "c", "a"):
                out.write({"a": value})
        sort(str(tmp_path / "set"), to(str(tmp_path / "sorted")), by="a")
        samples = list(StreamingDataset(local=str(tmp_path / "sorted")))
    assert samples == [{"a": "a"}, {"a": "b"}, {"a": "c"}]


# -- orders ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 100, 4097])
def test_a_shuffled_order_has_each_sample_once_and_can_be_had_in_parts(size):
    whole = ShuffledOrder(size, 3).ids(0, size)
    assert sorted(whole.tolist()) == list(range(size))
    parts = [ShuffledOrder(size, 3).ids(at, min(at + 7, size)) for at in range(0, size, 7)]
    assert np.array_equal(np.concatenate(parts), whole)
    if size > 2:
        assert not np.array_equal(whole, ShuffledOrder(size, 4).ids(0, size))


def test_samples_in_a_row_may_begin_anywhere():
    assert SequentialOrder(10, 5).ids(2, 4).tolist() == [7, 8]


def test_lists_are_read_in_parts(tmp_path):
    lists = OrderFiles(tmp_path, ["a", "b"])
    lists.add("a", np.array([5, 3]))
    lists.add("a", np.array([9]))
    assert (lists.orders["a"].size, lists.orders["b"].size) == (3, 0)
    assert lists.orders["a"].ids(1, 3).tolist() == [3, 9]
    assert lists.orders["b"].ids(0, 0).tolist() == []


# -- shuffle --------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gz"])
def test_shuffled_samples_are_the_same_in_the_order_of_the_seed(
    tmp_path, write, read, temporary, compression
):
    source = write(tmp_path / "source", range(200), compression=compression)
    written = shuffle(source, to(tmp_path / "out"), seed=7)
    assert (written.samples, written.shards > 5) == (200, True)
    before, after = read(source), read(tmp_path / "out")
    order = ShuffledOrder(200, 7).ids(0, 200)
    assert after["id"].tolist() == order.tolist()
    assert after["x"] == [before["x"][n] for n in order]
    assert after["vector"].tolist() == before["vector"][order].tolist()
    assert not list(temporary.glob("*/*/*"))


def test_bytes_of_a_shuffle_depend_on_its_seed_alone(source, tmp_path, content):
    for name in "ab":
        shuffle(source, to(tmp_path / name), seed=1)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    with pytest.raises(OutputExistsError):
        shuffle(source, to(tmp_path / "b"), seed=2)


# -- sort -----------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_samples_are_sorted_and_equal_ones_stay_in_order(
    source, tmp_path, read, monkeypatch, descending, small
):
    if small:  # so that keys go through files, which are merged again and again
        monkeypatch.setattr(sort_keys, "_MAX_RUN_BYTES", 1000)
        monkeypatch.setattr(sort_keys, "_MAX_MERGED_RUNS", 3)
        monkeypatch.setattr(sort_keys, "_KEYS_PER_RECORD", 2)
    sort(source, to(tmp_path / "out"), "name", descending=descending)
    expected = sorted(range(200), key=lambda n: n % 7, reverse=descending)
    assert read(tmp_path / "out")["id"].tolist() == expected


def test_samples_are_sorted_by_an_expression(source, tmp_path, read):
    sort(source, to(tmp_path / "out"), "(name, -id)", columns=Columns(select=["id"]))
    expected = sorted(range(200), key=lambda n: (n % 7, -n))
    assert read(tmp_path / "out")["id"].tolist() == expected


@pytest.mark.parametrize(
    ("by", "error", "said"),
    [
        ("id if id % 2 else name", ConfigError, "the keys cannot be sorted: '<' not supported"),
        ("vector", ConfigError, "the keys cannot be sorted: The truth value of an array"),
        ("float('nan')", ConfigError, "sample 0 has the key nan, .*: give such samples"),
        (
            "(name, [float('nan'), id])",
            ConfigError,
            r"sample 0 has the key \('name 0', \[nan, 0\]\)",
        ),
        ("ids", ConfigError, r"'ids': the data set has no \['ids'\], .*Did you mean 'id'"),
        ("id / 0", DataError, "'id / 0' for sample 0: ZeroDivisionError"),
        ("id +", ConfigError, r"'id \+' is no Python expression"),
    ],
)
def test_keys_that_cannot_be_sorted_are_refused(source, tmp_path, by, error, said):
    with pytest.raises(error, match=said):
        sort(source, to(tmp_path / "out"), by)
    assert not (tmp_path / "out").exists()


def test_keys_whose_comparison_fails_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"the keys cannot be sorted: .*InvalidOperation"):
        list(sort_keys.sort_by_key([(np.array([0]), [Decimal("sNaN")])], tmp_path))


def test_memory_of_large_keys_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(sort_keys, "_MAX_RUN_BYTES", 100_000)
    monkeypatch.setattr(sort_keys, "_MAX_RECORD_BYTES", 20_000)
    keys = [((f"{n % 7}" * 10_000, [n]), n) for n in range(40)]
    batches = ((np.array([n]), [key]) for key, n in keys)
    ordered = sort_keys.each_key(sort_keys.sort_by_key(batches, tmp_path))
    first = next(ordered)
    runs = list(tmp_path.iterdir())
    assert len(runs) == 4
    with runs[0].open("rb") as file:
        assert len(pickle.load(file)) == 1
    assert [first, *ordered] == sorted(keys)


INTEGERS = st.integers(-5, 5) | st.integers(-(2**70), 2**70) | st.booleans()
FLOATS = st.floats(allow_nan=False)


@pytest.mark.parametrize("reverse", [False, True])
@given(
    keys=st.lists(st.integers(-5, 5) | st.none())
    | st.lists(INTEGERS | st.none())
    | st.lists(FLOATS | st.none())
    | st.lists(FLOATS | INTEGERS)
    | st.lists(st.text(max_size=2) | st.none()),
    size=st.integers(1, 5),
    limit=st.sampled_from([100, 1000, 1 << 20]),
)
def test_keys_are_sorted_as_python_sorts_them(tmp_path_factory, reverse, keys, size, limit):
    starts = range(0, len(keys), size)
    batches = [(np.arange(at, min(at + size, len(keys))), keys[at : at + size]) for at in starts]
    with mock.patch.object(sort_keys, "_MAX_RUN_BYTES", limit):
        found = sort_keys.sort_by_key(batches, tmp_path_factory.mktemp("runs"), reverse=reverse)
        ordered = list(sort_keys.each_key(found))
    have = [(key, n) for n, key in enumerate(keys) if key is not None]
    have.sort(key=itemgetter(0), reverse=reverse)
    expected = have + [(None, n) for n, key in enumerate(keys) if key is None]
    assert ordered == expected
    assert [type(key) for key, _ in ordered] == [type(key) for key, _ in expected]


# -- select ---------------------------------------------------------------------------


def test_a_condition_that_is_neither_true_nor_false_is_refused(source, tmp_path):
    with pytest.raises(DataError, match=r"'vector > 0' for sample 0: ValueError: The truth value"):
        select(source, to(tmp_path / "out"), "vector > 0")
    assert not (tmp_path / "out").exists()


def test_samples_are_selected(source, tmp_path, read):
    written = select(source, to(tmp_path / "out"), "id % 3 == 1 and name != 'name 0'")
    expected = [n for n in range(200) if n % 3 == 1 and n % 7]
    assert written.samples == len(expected)
    assert read(tmp_path / "out")["id"].tolist() == expected


def test_expressions_of_numbers_read_no_column(tmp_path, write, read):
    columns = {"a": "pkl", "id": "int"}
    source = write(tmp_path / "source", range(9), columns, lambda n: {"a": {n}, "id": n})
    select(source, to(tmp_path / "some"), "number % 4 == 1", columns=Columns(drop=["a"]))
    assert read(tmp_path / "some")["id"].tolist() == [1, 5]
    sort(source, to(tmp_path / "back"), "-number", columns=Columns(drop=["a"]))
    assert read(tmp_path / "back")["id"].tolist() == list(range(9))[::-1]


def test_arrays_and_all_columns_can_be_looked_at(source, tmp_path, read):
    where = "np.sum(vector) > 300 and len(sample['x']) == 2 and number == sample['id']"
    select(source, to(tmp_path / "out"), where)
    expected = [n for n in range(200) if 3 * n + 3 > 300 and n % 5 == 2]
    assert read(tmp_path / "out")["id"].tolist() == expected


def test_nothing_may_be_left(source, tmp_path, read):
    written = select(source, to(tmp_path / "out"), "id < 0")
    assert (written.samples, written.shards, written.bytes) == (0, 0, 0)


# -- split ----------------------------------------------------------------------------


def test_fractions_have_no_sample_in_common_and_keep_the_order(source, tmp_path, read):
    shares = {"train": 0.7, "val": 0.2, "test": 0.1}
    written = split_by_fractions(source, lambda name: to(tmp_path / name), shares, seed=3)
    assert {name: each.samples for name, each in written.items()} == {
        "train": 140,
        "val": 40,
        "test": 20,
    }
    found = {name: read(tmp_path / name)["id"].tolist() for name in shares}
    assert sorted(n for ids in found.values() for n in ids) == list(range(200))
    assert all(ids == sorted(ids) for ids in found.values())
    assert found["val"] != list(range(140, 180))
    split_by_fractions(source, lambda name: to(tmp_path / f"{name}-4"), shares, seed=4)
    assert read(tmp_path / "val-4")["id"].tolist() != found["val"]


def test_fractions_in_another_order_are_another_split(source, tmp_path):
    split_by_fractions(source, lambda name: to(tmp_path / name), {"a": 0.9, "b": 0.1})
    delete(tmp_path / "b", dry_run=False)
    # Its samples would be in "a", too.
    with pytest.raises(OutputExistsError, match="it is made of other samples"):
        split_by_fractions(source, lambda name: to(tmp_path / name), {"b": 0.1, "a": 0.9})


def test_what_is_left_of_one_is_not_written(source, tmp_path):
    written = split_by_fractions(source, lambda name: to(tmp_path / name), {"a": 0.1, "b": 0})
    assert [each.samples for each in written.values()] == [20, 0]


@pytest.mark.parametrize("shares", [{}, {"a": 0.7, "b": 0.4}, {"a": -0.1, "b": 1}, {"a": 0}])
def test_fractions_must_be_some(source, tmp_path, shares):
    with pytest.raises(ConfigError, match="fractions="):
        split_by_fractions(source, lambda name: to(tmp_path / name), shares)


def test_sets_of_so_many_samples(source, tmp_path, read):
    written = split_by_size(source, lambda name: to(tmp_path / name), samples=90)
    assert {name: each.samples for name, each in written.items()} == {
        "00000": 90,
        "00001": 90,
        "00002": 20,
    }
    assert read(tmp_path / "00001")["id"].tolist() == list(range(90, 180))


def test_sets_of_about_so_many_bytes(tmp_path, write, read):
    sizes = {"x": "bytes"}
    source = write(tmp_path / "source", range(300), sizes, lambda n: {"x": bytes(n)})
    split_by_size(source, lambda name: to(tmp_path / name), bytes=10_000)
    sets = sorted(tmp_path.glob("0*"))
    values = [read(each)["x"] for each in sets]
    assert [len(x) for each in values for x in each] == list(range(300))
    total = [sum(map(len, each)) for each in values]
    assert len(total) in (5, 6)
    assert all(7_000 < size < 11_000 for size in total[:-1])


def test_a_set_is_split_by_one_thing(source, tmp_path):
    for sizes in ({}, {"samples": 1, "bytes": 1}, {"samples": 0}, {"bytes": -1}):
        with pytest.raises(ConfigError, match="give samples= or bytes="):
            split_by_size(source, lambda name: to(tmp_path / name), **sizes)


# -- keys as users write them ------------------------------------------------------------


SPACED = {"user id": "int", "from": "str", "a-b": "json", "n": "int"}


@pytest.fixture
def spaced(tmp_path, write):
    """A set of 20 samples whose columns have names that are not Python's; some of `a-b` are None."""

    def make(n):
        part = None if n % 3 == 0 else n % 5
        return {"user id": n * 7 % 20, "from": f"{n % 4}", "a-b": part, "n": n}

    return write(tmp_path / "spaced", range(20), SPACED, make)


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("user id", lambda n: n * 7 % 20),
        ("from", lambda n: f"{n % 4}"),
        ("sample['user id']", lambda n: n * 7 % 20),
        ("(sample['from'], -n)", lambda n: (f"{n % 4}", -n)),
    ],
)
def test_a_column_may_have_any_name(spaced, tmp_path, read, by, key):
    sort(spaced, to(tmp_path / "out"), by, columns=Columns(select=["n"]))
    assert read(tmp_path / "out")["n"].tolist() == sorted(range(20), key=key)


def test_samples_are_selected_by_a_column_of_any_name(spaced, tmp_path, read):
    select(spaced, to(tmp_path / "out"), "sample['user id'] > 10")
    assert read(tmp_path / "out")["n"].tolist() == [n for n in range(20) if n * 7 % 20 > 10]
    select(spaced, to(tmp_path / "some"), "a-b")
    assert read(tmp_path / "some")["n"].tolist() == [n for n in range(20) if n % 3 and n % 5]


@pytest.mark.parametrize("name", ["number", "sample"])
def test_a_column_may_have_a_name_of_expressions(tmp_path, write, read, name):
    columns = {name: "int", "a b": "int"}
    source = write(tmp_path / "in", range(9), columns, lambda n: {name: -n, "a b": n % 3})
    sort(source, to(tmp_path / "sorted"), name)
    assert read(tmp_path / "sorted")[name].tolist() == list(range(-8, 1))
    select(source, to(tmp_path / "selected"), f"{name} < -5")
    assert read(tmp_path / "selected")[name].tolist() == [-6, -7, -8]
    process(source, to(tmp_path / "set"), {name: f"{name} - 1"})
    assert read(tmp_path / "set")[name].tolist() == list(range(-1, -10, -1))
    sort(source, to(tmp_path / "spaced"), "a b")
    assert read(tmp_path / "spaced")["a b"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_misspelt_column_with_a_space_is_told_with_the_nearest(spaced, tmp_path):
    with pytest.raises(
        ConfigError, match=r"'usr id' is no Python expression.*Did you mean 'user id'"
    ):
        sort(spaced, to(tmp_path / "out"), "usr id")
    with pytest.raises(ConfigError, match=r"as sample\['user id'\]$"):
        sort(spaced, to(tmp_path / "out"), "user id > 3)")


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_samples_without_a_value_come_last(spaced, tmp_path, read, monkeypatch, descending, small):
    if small:
        monkeypatch.setattr(sort_keys, "_MAX_RUN_BYTES", 300)
    sort(spaced, to(tmp_path / "out"), "a-b", descending=descending)
    known = sorted((n for n in range(20) if n % 3), key=lambda n: n % 5, reverse=descending)
    assert read(tmp_path / "out")["n"].tolist() == [*known, *range(0, 20, 3)]


def test_the_advice_for_parts_of_keys_that_are_none_works(spaced, tmp_path, read):
    with pytest.raises(ConfigError, match=r"cannot be sorted: .*\(KEY is None, KEY or 0\) for it"):
        sort(spaced, to(tmp_path / "out"), "(sample['from'], sample['a-b'])")
    key = "sample['a-b']"
    by = "(sample['from'], (KEY is None, KEY or 0))".replace("KEY", key)
    sort(spaced, to(tmp_path / "out"), by)
    part = [None if n % 3 == 0 else n % 5 for n in range(20)]
    expected = sorted(range(20), key=lambda n: (f"{n % 4}", part[n] is None, part[n] or 0))
    assert read(tmp_path / "out")["n"].tolist() == expected


def as_they_are(encoding):
    return encoding


@pytest.mark.parametrize(
    "options",
    [
        {"select": range(100, 200)},
        {"select": range(99, 199)},
        {"decoders": {"name": as_they_are}},
    ],
)
def test_a_job_does_not_go_on_with_other_samples(source, tmp_path, options):
    first = {"select": range(100)} if "select" in options else {}
    convert([Stream(remote=str(source), **first)], to(tmp_path / "out"))
    convert([Stream(remote=str(source), **first)], to(tmp_path / "out"))  # which is the same call
    with pytest.raises(OutputExistsError, match="it is made of other samples"):
        convert([Stream(remote=str(source), **options)], to(tmp_path / "out"))


@pytest.mark.parametrize("whole", [False, True])
def test_the_cache_limit_of_a_stream_is_that_of_the_job(source, tmp_path, whole):
    with serving(source) as server:
        stream = Stream(remote=server.url, cache_limit="10kb")
        (cached,) = cache_locally([stream], tmp_path / "cache", whole=whole)
        assert cached.cache == (tmp_path / "cache" / "0", 10 << 10)
        assert shuffle(stream, Output(tmp_path / "out", processes=0)).samples == 200
