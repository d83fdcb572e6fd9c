"""Every distribution of this repository agrees with the others in what they must have in common."""

from __future__ import annotations

import re
import sys
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import streamplug
from streamplug.plugin import inventory
from streamplug.plugin.catalog import CATALOG, COMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob("plugins/streamplug-*/pyproject.toml"))
NAMES = [folder.name for folder in FOLDERS]
# Users import these, or they bring commands; nothing looks for names in them.
NO_PLUGINS = {
    "streamplug-datasets",
    "streamplug-packing",
    "streamplug-simulate",
    "streamplug-testing",
    "streamplug-tokens",
}
COMMON = [
    "version", "requires-python", "license", "license-files", "readme", "authors", "classifiers",
]  # fmt: skip


@cache
def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())


CORE = project(ROOT)
VERSION = CORE["project"]["version"]
EACH = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_version_is_one():
    assert streamplug.__version__ == VERSION


@EACH
def test_metadata_is_that_of_the_core(folder):
    found = project(folder)["project"]
    assert {key: found[key] for key in COMMON} == {key: CORE["project"][key] for key in COMMON}


@EACH
def test_is_named_and_laid_out_alike(folder):
    found, module = project(folder), folder.name.replace("-", "_")
    assert found["project"]["name"] == folder.name
    assert found["build-system"] == CORE["build-system"]
    assert found["project"]["description"].endswith(".")
    points = {"streamplug": {folder.name.partition("-")[2]: f"{module}.plugin"}}
    names = ("plugin.py", "py.typed", "__init__.py")
    if folder.name in NO_PLUGINS:
        points, names = {}, names[1:]
    if commands := sorted(name for name, dist in COMMANDS.items() if dist == folder.name):
        points = {**points, "streamplug.commands": commands}
    provided = found["project"].get("entry-points", {})
    if "streamplug.commands" in provided:
        provided = {**provided, "streamplug.commands": sorted(provided["streamplug.commands"])}
    assert provided == points
    assert found["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"src/{module}"]
    for name in names:
        assert (folder / "src" / module / name).is_file()
    assert list((folder / "tests").glob("test_*.py"))
    assert not list((folder / "tests").rglob("__init__.py"))


@EACH
def test_requires_the_others_in_its_own_version(folder):
    found = project(folder)["project"]
    lines = chain(found["dependencies"], *found.get("optional-dependencies", {}).values())
    ours = [line for line in lines if line.startswith("streamplug")]
    assert f"streamplug=={VERSION}" in ours
    assert [line for line in ours if not line.endswith(f"=={VERSION}")] == []


def test_plugins_of_others_require_a_minor_release():
    major, minor, *_ = VERSION.split(".")
    required = f"streamplug>={major}.{minor},<{major}.{int(minor) + 1}"
    common = Path("plugins/streamplug-testing/src/streamplug_testing/scaffold/common")
    for place in (common / "pyproject.toml.tmpl", "docs/plugins/index.md", "docs/versions.md"):
        assert required in (ROOT / place).read_text(), place


@EACH
def test_has_licence_and_readme(folder):
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")


@EACH
def test_catalog_has_exactly_its_names(folder):
    provided = {
        (found.kind, found.name)
        for found in inventory().entries
        if found.distribution == folder.name
    }
    if not provided:
        pytest.skip(f"{folder.name} is not installed, or no plugin")
    listed = {
        (kind, name)
        for kind, names in CATALOG.items()
        for name, distribution in names.items()
        if distribution == folder.name
    }
    assert listed == provided


def test_catalog_names_our_distributions():
    assert {d for names in CATALOG.values() for d in names.values()} == set(NAMES) - NO_PLUGINS


def test_each_has_an_extra():
    extras = CORE["project"]["optional-dependencies"]
    ours = {name: wanted for name, wanted in extras.items() if wanted[0].startswith("streamplug-")}
    assert sorted(ours.values()) == [[f"{name}=={VERSION}"] for name in NAMES]
    assert extras["all"] == [f"streamplug[{','.join(n for n in extras if n not in NOT_IN_ALL)}]"]


NOT_IN_ALL = ("all", "testing")  # the test kit is for authors of plugins


def test_each_is_installed_for_tests():
    lines = (ROOT / "plugins" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f"-e ./plugins/{name}" for name in NAMES
    ]


def test_each_is_typed():
    modules = re.findall(r"-p (\w+)", (ROOT / "tox.ini").read_text())
    assert modules == ["streamplug", *(name.replace("-", "_") for name in NAMES)]


def test_each_is_in_the_list_of_plugins():
    text = (ROOT / "docs" / "plugins" / "list.md").read_text()
    assert [name for name in NAMES if f"[`{name}`](" not in text] == []
