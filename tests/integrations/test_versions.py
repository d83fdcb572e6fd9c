"""The documentation names the versions that these tests ran with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "integrations" / "trainers.md").read_text()
ROW = r"\| \[[^|]*\| (\S+) ([\d.]+) \|"
NAMED = re.findall(ROW, PAGE) + re.findall(r"Tested with (datasets) ([\d.]+\d)", PAGE)


def test_there_are_versions():
    assert len(NAMED) == 13


@pytest.mark.parametrize(("package", "tested"), NAMED)
def test_version_is_the_one_in_the_documentation(package, tested):
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip("another environment has it")
    assert installed.partition("+")[0] == tested
