"""The page on the architecture is true, and the code keeps to it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from importlib import import_module
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


SOURCES = sorted([*CORE.rglob("*.py"), *ROOT.glob("plugins/streamplug-*/src/**/*.py")])
FOR_AUTHORS = {
    "interfaces": {"ColumnarRows"},
    "source": {"Observer", "ShardAccess"},
}
"""Names that only authors of plugins use, as the pages and examples for them show."""


@cache
def nodes_of(path):
    """Return the imports and asserts of a file."""
    kinds = (ast.Import, ast.ImportFrom, ast.Assert)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def imports_from_packages():
    """Yield the file, the module and the names of each import of another package of the core."""
    for path in SOURCES:
        in_core = path.is_relative_to(CORE)
        own = path.relative_to(CORE).parts[0] if in_core else ""
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamplug."):
                package = node.module.split(".")[1]
                if package != own and (CORE / package).is_dir():
                    yield path, node.module, [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    parts = alias.name.split(".")
                    if parts[0] == "streamplug" and len(parts) > 2 and parts[1] != own:
                        yield path, alias.name, []


def face(package):
    return {*getattr(import_module(f"streamplug.{package}"), "__all__", ())}


def test_other_packages_are_used_by_their_faces():
    behind = [
        f"{path.relative_to(ROOT)}: {module}"
        for path, module, _ in imports_from_packages()
        if module.count(".") > 1 and not path.match("src/streamplug/__init__.py")
    ]
    assert behind == []


def test_each_name_of_a_face_has_a_user():
    used = defaultdict(set)
    for _, module, names in imports_from_packages():
        used[module].update(names)
    for folder in sorted(path.parent for path in CORE.glob("*/__init__.py")):
        listed, package = face(folder.name), f"streamplug.{folder.name}"
        modules = {path.stem for path in folder.glob("*.py")}
        assert used[package] - modules <= listed, package
        assert listed - used[package] == FOR_AUTHORS.get(folder.name, set()), package


# -- what sources contain ---------------------------------------------------------

TESTING = ROOT / "plugins" / "streamplug-testing"
PIPELINES = ROOT / "plugins" / "streamplug-webdataset" / "src" / "streamplug_webdataset"
MOSAIC = ROOT / "plugins" / "streamplug-mosaic" / "src" / "streamplug_mosaic" / "compat"
TORCH = (
    *(CORE / "adapters").glob("torch*.py"),
    ROOT / "plugins" / "streamplug-torch",
    ROOT / "plugins" / "streamplug-packing" / "src" / "streamplug_packing" / "loader.py",
    ROOT / "plugins" / "streamplug-image" / "src" / "streamplug_image" / "device_jpegs.py",
    ROOT / "plugins" / "streamplug-image" / "src" / "streamplug_image" / "resampler.py",
    PIPELINES / "iterable_dataset.py", PIPELINES / "loader.py",
    MOSAIC / "distributed.py", MOSAIC / "loader.py", MOSAIC / "local_dataset.py",
)  # fmt: skip
# Nothing of the machine: no files, no threads, no clock, no chance.
PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "fractions", "functools", "hashlib", "heapq",
    "itertools", "json", "math",
    "numpy", "reprlib", "typing",
}  # fmt: skip
PURE_OURS = ("errors", "interfaces", "plan", "types")
WITHOUT_REASON = {
    "an error of mypy": re.compile(r"# type: ignore(?!\[[\w, -]+\]  # \w)"),
    "any exception": re.compile(r"# noqa: [\w, ]*BLE001(?![\w, ]* - \w)"),
}


def modules_imported(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_packages_have_no_assert():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        if TESTING not in path.parents  # tests are made of them
        for node in nodes_of(path)
        if isinstance(node, ast.Assert)
    ]
    assert found == [], "raise an error of streamplug.errors instead"


def test_named_tuples_have_no_other_base():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and len(node.bases) > 1
        if any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
    ]
    assert found == [], "Python 3.10 refuses them, which mypy does not see"


def test_torch_is_imported_in_its_places_only():
    found = {p for p in SOURCES if any(m.split(".")[0] == "torch" for m in modules_imported(p))}
    allowed = {path for path in found if path in TORCH or {*path.parents} & {*TORCH}}
    assert allowed
    assert sorted(found - allowed) == []


@pytest.mark.parametrize("path", sorted((CORE / "plan").glob("*.py")), ids=lambda path: path.name)
def test_plan_imports_nothing_of_the_machine(path):
    for module in modules_imported(path):
        first, *rest = module.split(".")
        assert (first == "streamplug" and rest[0] in PURE_OURS) or first in PURE, module


@pytest.mark.parametrize("what", WITHOUT_REASON)
def test_what_is_suppressed_has_its_reason_beside_it(what):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WITHOUT_REASON[what].search(line)
    ]
    assert found == []
