"""Arguments of jobs that have no meaning are refused, rather than changed or ignored."""

from __future__ import annotations

import re

import numpy as np
import pytest
from streamplug_tools import (
    Columns,
    Output,
    as_lines,
    convert,
    diff,
    inspect,
    join,
    page_about,
    process,
    process_with,
    shuffle,
    sort,
    split_by_fractions,
    split_by_size,
)
from streamplug_tools.verification import verify

from streamplug import MDSWriter, Stream
from streamplug.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "id"}, "select='id': expected a list of names, such as ['id']"),
        ({"drop": "id"}, "drop='id': expected a list of names, such as ['id']"),
        ({"drop": None}, "drop=None: expected a list of names"),
        ({"select": [5]}, "select=[5]: expected a list of names"),
        ({"rename": [("id", "n")]}, "rename=[('id', 'n')]: expected a dict of text by column name"),
        ({"rename": {"id": 5}}, "rename={'id': 5}: expected a dict of text by column name"),
        ({"encodings": "int"}, "encodings='int': expected a dict of text by column name"),
        ({"allow_unsafe_types": "no"}, "allow_unsafe_types='no': must be True or False"),
    ],
)
def test_columns_are_lists_and_dicts_of_names(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Columns(**options)
    if options.keys() <= {"select", "drop"}:
        with pytest.raises(ConfigError, match=re.escape(message)):
            next(as_lines("nowhere", **options))


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(columns={"id": "int"}, out=tmp_path / "set") as writer:
        for number in range(10):
            writer.write({"id": number})
    return str(tmp_path / "set")


@pytest.mark.parametrize("value", [-1, True, 1.5, "2", None])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (inspect, "samples"),
        (page_about, "samples"),
        (page_about, "measured"),
        (lambda folder, **options: diff(folder, folder, **options), "max_differences"),
    ],
)
def test_counts_are_whole_numbers(folder, call, name, value):
    message = f"{name}={value!r}: must be a whole number of at least 0"
    with pytest.raises(ConfigError, match=re.escape(message)):
        call(folder, **{name: value})


@pytest.mark.parametrize("call", [inspect, page_about, lambda them: diff(them, "other")])
def test_what_is_about_one_data_set_takes_no_list_of_them(folder, call):
    with pytest.raises(ConfigError, match=r"expected a path, a URL or a Stream .*, got list"):
        call([folder, folder])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (page_about, "allow_unsafe_types"),
        (lambda folder, **options: verify(Stream(local=folder), **options), "allow_unsafe_types"),
        (lambda folder, **options: diff(folder, folder, **options), "allow_unsafe_types"),
        (lambda folder, **options: diff(folder, folder, **options), "values"),
    ],
)
def test_flags_are_true_or_false(folder, call, name):
    with pytest.raises(ConfigError, match=f"{name}='no': must be True or False"):
        call(folder, **{name: "no"})


def test_verify_takes_a_stream(folder):
    with pytest.raises(
        ConfigError, match=r"expected a Stream to verify, got str; give Stream\(rem"
    ):
        verify(folder)


@pytest.mark.parametrize("value", [-1, True, 1.5, "2", None])
@pytest.mark.parametrize(
    "call",
    [shuffle, lambda *some, **options: split_by_fractions(*some, {"a": 0.5}, **options)],
)
def test_seeds_are_whole_numbers(folder, tmp_path, call, value):
    message = f"seed={value!r}: must be a whole number of at least 0"
    with pytest.raises(ConfigError, match=re.escape(message)):
        call(folder, Output(tmp_path / "out"), seed=value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda *some: sort(*some, "id", descending="no"),
            "descending='no': must be True or False",
        ),
        (lambda *some: split_by_size(*some, samples=True), "samples=True: must be a whole number"),
        (lambda *some: split_by_size(*some, samples=2.5), "samples=2.5: must be a whole number"),
        (lambda *some: split_by_size(*some, bytes=1.5), "bytes=1.5: expected bytes"),
        (lambda *some: split_by_size(*some, bytes="0"), "give samples= or bytes=, of at least 1"),
        (
            lambda *some: split_by_fractions(*some, {"a": True}),
            "fractions={'a': True}: expected a dict",
        ),
        (lambda *some: split_by_fractions(*some, [0.5]), "fractions=[0.5]: expected a dict"),
        (lambda *some: join(*some, "id"), "give two data sets or more to be joined"),
        (lambda *some: process(*some, "id"), "expressions='id': expected a dict"),
        (
            lambda *some: process_with(*some, "sed -n p"),
            "give the program and its arguments as a list",
        ),
    ],
)
def test_arguments_of_other_types_are_refused(folder, tmp_path, call, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        call(folder, Output(tmp_path / "out", processes=0))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda *some: split_by_fractions(*some, {"a": 0.5, "b": 0.5}),
        lambda *some: split_by_size(*some, samples=5),
    ],
)
def test_each_part_of_a_split_has_its_own_place(folder, tmp_path, call):
    output = Output(tmp_path / "out", processes=0, exist_ok=True)
    with pytest.raises(ConfigError, match=r"outputs= gives '.*out' for '\w+' and '\w+'; have it"):
        call(folder, lambda _: output)
    assert not (tmp_path / "out").exists()


def test_fractions_may_be_numbers_of_numpy(folder, tmp_path):
    def output(name):
        return Output(tmp_path / name, processes=0)

    split = split_by_fractions(folder, output, {"a": np.float32(0.5)})
    assert [result.samples for result in split.values()] == [5]


def test_sizes_of_splits_may_be_text(folder, tmp_path):
    split = split_by_size(folder, lambda name: Output(tmp_path / name, processes=0), bytes="1gb")
    assert [result.samples for result in split.values()] == [10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exist_ok": "no"}, "exist_ok='no': must be True or False"),
        ({"processes": -1}, "processes=-1: must be a whole number of at least 0"),
        ({"processes": "4"}, "processes='4': must be a whole number of at least 0"),
    ],
)
def test_options_of_outputs_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        Output("out", **options)


@pytest.mark.parametrize("weight", [{"choose": 3}, {"repeat": 2}, {"proportion": 1}])
@pytest.mark.parametrize(
    "call",
    [convert, lambda source, output: join([source, source], output, "id")],
)
def test_weights_of_streams_are_for_epochs(folder, tmp_path, call, weight):
    [(name, value)] = weight.items()
    with pytest.raises(ConfigError, match=f"{name}={value} is for the epochs of a run"):
        call(Stream(local=folder, **weight), Output(tmp_path / "out"))
