"""The page on the architecture names every package, layer and internal module that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "streamplug"
PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
MAX_LAYERS = 14
MAX_ROOT_MODULES = 7
"""Beside ``__init__`` and ``__main__``."""
PUBLIC = {"errors", "types", "interfaces", "plugin", "plugin_kit"}
"""What plugins of all authors may import, beside `streamplug` itself."""


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def names_in_table(title):
    cells = re.findall(r"^\| (`.*?`) \|", section(title), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]


def root_names():
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    return packages | {path.stem for path in CORE.glob("*.py")} - {"__init__"}


def layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [contract for contract in contracts if contract["type"] == "layers"]
    return contract["layers"]


def test_every_package_and_no_other_is_in_the_table():
    assert sorted(names_in_table("Packages")) == sorted(root_names())


def test_every_layer_is_in_the_picture_in_order():
    picture = section("Layers").partition("```text\n")[2].partition("\n```")[0]
    assert picture.splitlines() == layers()
    assert len(layers()) <= MAX_LAYERS


def test_the_root_has_few_modules():
    modules = {path.stem for path in CORE.glob("*.py")} - {"__init__", "__main__"}
    assert len(modules) <= MAX_ROOT_MODULES, sorted(modules)


def test_code_goes_to_packages_that_exist():
    answers = re.findall(
        r"^\| [^|]*[^|`] \| (.*) \|$", section("Where does this line of code go?"), re.MULTILINE
    )
    names = {name for answer in answers for name in re.findall(r"`([a-z_-]+)`", answer)}
    distributions = {path.name for path in (ROOT / "plugins").glob("streamplug-*")}
    assert names - root_names() - distributions - {"plugins", "streamplug_testing"} == set()


@pytest.mark.parametrize(
    ("title", "least"),
    [("How a sample is read", 15), ("How `resize()` continues a loop with workers", 6)],
)
def test_a_walk_names_each_file_once(title, least):
    files = re.findall(r"`([a-z_/]+\.py)`", section(title))
    assert [name for name in files if not (CORE / name).exists()] == []
    assert len(files) == len(set(files)) >= least


def imported_modules(path):
    """Return the modules of the core that a file imports, without the prefix of the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "streamplug" and (module := existing_module(rest)):
                yield module


def existing_module(name):
    """Return the module that a dotted name is, or is a name in."""
    while name:
        path = CORE / name.replace(".", "/")
        if path.is_dir() or path.with_suffix(".py").exists():
            return name
        name = name.rpartition(".")[0]
    return ""


def test_first_party_plugins_use_what_is_listed():
    listed = {*PUBLIC, *names_in_table("What first-party plugins may use")}
    used = {}
    for path in ROOT.glob("plugins/*/src/**/*.py"):
        for module in imported_modules(path):
            parts = module.split(".")
            prefixes = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
            if not prefixes & listed:
                used.setdefault(module, str(path.relative_to(ROOT)))
    assert used == {}, "list these on the page, or do without them"


def test_what_is_listed_exists():
    listed = names_in_table("What first-party plugins may use")
    assert [name for name in listed if existing_module(name) != name] == []
