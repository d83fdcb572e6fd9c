"""Arguments of jobs that have no meaning are refused, rather than changed or ignored."""

from __future__ import annotations

import re

import pytest
from streamplug_tools import Columns, as_lines, diff, inspect, page_about
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
