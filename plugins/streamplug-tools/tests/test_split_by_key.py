"""Splits by the hash of a key, which stay the same when the data set grows."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from streamplug_tools import Columns, Output, split_by_fractions, xxh64

from streamplug import Stream
from streamplug.cli import main
from streamplug.errors import ConfigError, DataError

COLUMNS = {"id": "int", "user": "str", "score": "float64", "tags": "json"}
SHARES = {"train": 0.7, "val": 0.2, "test": 0.1}


def make(number):
    user = f"user {number % 37}"
    return {"id": number, "user": user, "score": number / 4, "tags": [number % 5, user]}


@pytest.fixture
def small(tmp_path, write):
    return write(tmp_path / "small", range(300), COLUMNS, make)


@pytest.fixture
def grown(tmp_path, write):
    """A data set with the samples of `small` in another order and between others, with wider numbers."""
    numbers = [*range(900, 299, -1), *range(299, -1, -1)]
    return write(tmp_path / "grown", numbers, {**COLUMNS, "id": "int64", "score": "float64"}, make)


def split(source, folder, read, by, shares=SHARES, **options):
    """Return the part of each id."""

    def output(name):
        return Output(folder / name, processes=0)

    written = split_by_fractions(source, output, shares, by=by, **options)
    assert list(written) == list(shares)
    parts = {
        name: read(folder / name)["id"].tolist() if result.samples else []
        for name, result in written.items()
    }
    assert {name: result.samples for name, result in written.items()} == {
        name: len(ids) for name, ids in parts.items()
    }
    return {id_: name for name, ids in parts.items() for id_ in ids}


KEYS = [
    "id",
    "user",
    "(user, id % 3)",
    "tags",
    "f'{user}/{id}'",
    "score",
    "xxh64(user, 9)",
    "sample['user']",
]


@pytest.mark.parametrize("by", KEYS)
def test_a_sample_stays_in_its_part_when_the_data_set_grows(small, grown, tmp_path, read, by):
    before = split(small, tmp_path / "a", read, by)
    after = split(grown, tmp_path / "b", read, by)
    assert before.keys() == set(range(300))
    assert len(after) == 901
    assert {n: after[n] for n in before} == before
    assert len(set(before.values())) >= 2
    both = split([small, Stream(local=small)], tmp_path / "c", read, by)
    assert both == before


def test_the_part_depends_on_the_hash_of_the_key_and_the_fractions_only(small, tmp_path, read):
    parts = split(small, tmp_path / "a", read, "user", seed=4)
    for number, name in parts.items():
        share = xxh64(make(number)["user"], 4) / 2**64
        assert name == ("train" if share < 0.7 else "val" if share < 0.9 else "test")
    assert split(small, tmp_path / "b", read, "user") != parts
    assert len(set(map(frozenset, {(make(n)["user"], parts[n]) for n in parts}))) == 37
    # A part of the same place in the sum of fractions has the same samples.
    fewer = split(
        small, tmp_path / "c", read, "user", {"none": 0, "train": 0.7, "rest": 0.2}, seed=4
    )
    assert fewer == {
        n: {"train": "train", "val": "rest"}[part] for n, part in parts.items() if part != "test"
    }


def test_shares_are_about_those_of_the_keys(tmp_path, write, read):
    source = write(tmp_path / "in", range(20_000), {"id": "int"}, lambda n: {"id": n})
    parts = list(split(source, tmp_path / "out", read, "id").values())
    assert all(abs(parts.count(name) / 20_000 - share) < 0.02 for name, share in SHARES.items())
    thirds = dict.fromkeys("abc", 1 / 3)
    assert len(split(source, tmp_path / "thirds", read, "id", thirds)) == 20_000


@pytest.mark.parametrize(
    ("by", "error", "message"),
    [
        ("hash(user)", ConfigError, r"hash\(\) cannot be part"),
        ("usr", ConfigError, r"has no \['usr'\].*Did you mean 'user'"),
        ("number", ConfigError, "by='number': expected a key of columns"),
        ("(user, number)", ConfigError, "expected a key of columns"),
        ("1", ConfigError, "by='1': expected a key of columns"),
        ("user if id != 7 else None", ConfigError, "sample 7 has no key, but None; give such"),
        ("score if id != 7 else math.nan", ConfigError, "sample 7 has no key, but nan"),
        ("np.datetime64('NaT') if id else id", ConfigError, "sample 1 has no key, but NaT"),
        ("np.sum(x for x in tags)", ConfigError, r"\(… for …\)"),
        ("re.search('u', user)", ConfigError, r"sample 0: xxh64 hashes .* no re\.Match"),
        ("1 / id", DataError, "for sample 0: ZeroDivisionError"),
        (3, ConfigError, "expected an expression as text, got 3"),
        ("", ConfigError, "is no Python expression"),
    ],
)
def test_what_is_no_key_is_refused(small, tmp_path, read, by, error, message):
    with pytest.raises(error, match=message):
        split(small, tmp_path / "out", read, by)
    assert not (tmp_path / "out").exists()


def test_a_column_called_number_is_a_key(tmp_path, write, read):
    columns = {"id": "int", "number": "int"}
    source = write(tmp_path / "in", range(50), columns, lambda n: {"id": n, "number": n % 5})
    parts = split(source, tmp_path / "out", read, "number", {"a": 0.5, "b": 0.5})
    assert all(parts[n] == parts[n % 5] for n in parts)


def test_a_key_need_not_be_written(small, tmp_path, read):
    columns = Columns(select=["id"], encodings={"id": "int16"})
    parts = split(small, tmp_path / "out", read, "user", columns=columns)
    assert parts == split(small, tmp_path / "all", read, "user")


def test_command(small, tmp_path, read):
    def run(*args):
        return CliRunner().invoke(main, ["split", *map(str, (small, *args)), "--processes", "0"])

    shares = ["--fractions", "train=0.7,val=0.2,test=0.1"]
    done = run(tmp_path / "out", *shares, "--by", "user", "--json")
    assert done.exit_code == 0
    expected = split(small, tmp_path / "api", read, "user")
    counts = {name: result["samples"] for name, result in json.loads(done.stdout).items()}
    assert counts == {name: list(expected.values()).count(name) for name in SHARES}
    # The same command keeps its result, another key is another data set.
    assert run(tmp_path / "out", *shares, "--by", "user").exit_code == 0
    assert "exist" in f"{run(tmp_path / 'out', *shares, '--by', 'id').output}"
    assert "exist" in f"{run(tmp_path / 'out', *shares).output}"
    refused = run(tmp_path / "no", "--samples", 3, "--by", "user")
    assert refused.exit_code == 2
    assert "--by: only with --fractions" in refused.output
    assert "give it once" in run(tmp_path / "no", *shares, "--by", "id", "--by", "user").output
