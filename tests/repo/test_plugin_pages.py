"""The pages of plugin authors have one form, and name every method that a plugin of their kind must have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamplug_files import FileListFormat, IndexImportFormat, MultiFileFormat, ScannableFormat

from streamplug import interfaces
from streamplug.interfaces import (
    Permutation,
    RangeReadableFormat,
    ShardReader,
    ShardWriter,
    WritableFormat,
)
from streamplug.plan import Epoch, Planner
from streamplug.plugin.kinds import KINDS

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = ("What to write", "An example", "Test it", "What to know", "Register it")
RETURNED_CLASSES = {
    "format": [
        WritableFormat,
        ShardReader,
        ShardWriter,
        RangeReadableFormat,
        ScannableFormat,
        MultiFileFormat,
        FileListFormat,
        IndexImportFormat,
    ],
    "shuffle": [Permutation],
    "order": [Planner, Epoch],
}
"""Classes that authors write besides the interface."""


def page(kind):
    return (DOCS / "plugins" / f"{kind}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_has_the_sections(kind):
    headings = re.findall(r"^## (.*)$", page(kind), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == list(SECTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_names_every_abstract_method(kind):
    text = page(kind)
    for cls in [KINDS[kind].interface_class(), *RETURNED_CLASSES.get(kind, [])]:
        assert f"`{cls.__name__}`" in text or f".{cls.__name__}`" in text
        missing = {name for name in cls.__abstractmethods__ if f"`{name}`" not in text}
        assert not missing, f"{cls.__name__}: {sorted(missing)}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_tests_and_registers_its_example(kind):
    text = page(kind)
    assert re.search(rf"^class Test\w+\({kind.title()}Tests\):$", text, re.MULTILINE)
    assert f'@hookimpl\ndef streamplug_plugins():\n    return [Provider("{kind}", ' in text


def test_the_metadata_of_a_distribution_can_be_built():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads(re.search(r"```toml\n(.*?)```", page("index"), re.DOTALL)[1])["project"]
    assert {"name", "version"} <= project.keys()


def test_every_name_of_the_interfaces_is_in_the_reference():
    reference = (DOCS / "reference" / "interfaces.md").read_text(encoding="utf-8")
    missing = [n for n in interfaces.__all__ if f" streamplug.interfaces.{n}\n" not in reference]
    assert not missing
