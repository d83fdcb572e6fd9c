"""Arguments of jobs that have no meaning are refused, rather than changed or ignored."""

from __future__ import annotations

import re

import pytest
from streamplug_tools import Columns, as_lines

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
