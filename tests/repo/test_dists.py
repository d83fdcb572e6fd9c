"""Every distribution of this repository agrees with the others in what they must have in common."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import streamplug
from streamplug.plugin.catalog import load_catalog

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
    provided = found["project"].get("entry-points", {})
    others = ("streamplug.commands", "streamplug.names", "streamplug.sections")
    assert {group: of for group, of in provided.items() if group not in others} == points
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
def test_has_a_readme_and_no_licence_of_its_own(folder):
    assert not (folder / "LICENSE").exists()  # .ci/build adds that of the root
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")


def test_what_follows_from_them_is_registered():
    command = [sys.executable, ".ci/register", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_catalog_has_those_with_names():
    listed = {name for names in load_catalog().values() for name in names.values()}
    assert listed >= set(NAMES) - NO_PLUGINS
    assert listed <= set(NAMES)


def test_each_has_an_extra():
    extras = CORE["project"]["optional-dependencies"]
    ours = [wanted for wanted in extras.values() if wanted[0].startswith("streamplug-")]
    alone = [wanted for wanted in ours if "[" not in wanted[0]]
    assert sorted(alone) == [[f"{name}=={VERSION}"] for name in NAMES]
    assert all(wanted[0].endswith(f"=={VERSION}") for wanted in ours)
    assert extras["all"] == [f"streamplug[{','.join(n for n in extras if n not in NOT_IN_ALL)}]"]


NOT_IN_ALL = (
    "all",
    "testing",
    "train",
)  # the test kit is for authors of plugins; `train` is a part


def test_each_is_in_the_list_of_plugins():
    text = (ROOT / "docs" / "plugins" / "list.md").read_text()
    assert [name for name in NAMES if f"[`{name}`](" not in text] == []
