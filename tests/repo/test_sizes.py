"""What keeps the packages plain."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "streamplug"
FILES = sorted([*CORE.rglob("*.py"), *ROOT.glob("plugins/streamplug-*/src/**/*.py")])
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
MAX_FUNCTION = 40
PLAN = [path for path in FILES if CORE / "plan" in path.parents]
# Nothing of the machine: no files, no threads, no clock, no chance.
PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "fractions", "functools", "hashlib", "heapq",
    "itertools", "json", "math",
    "numpy", "reprlib", "typing",
}  # fmt: skip
PURE_OURS = ("errors", "interfaces", "plan", "types")
PURE_MODULES = ("streamplug.plugin_kit.shuffle_order",)


def test_file_has_no_assert():
    # Tests are made of them.
    others = [path for path in FILES if TESTING not in path.parents]
    found = [f"{_named(path)}:{line}" for path in others for line in _asserts_and_imports(path)[0]]
    assert found == [], "raise an error of streamplug.errors instead"


def test_file_leaves_torch_alone():
    found = {path for path in FILES if "torch" in _asserts_and_imports(path)[1]}
    allowed = {path for path in found if path in TORCH or {*path.parents} & {*TORCH}}
    assert allowed
    assert [_named(path) for path in found - allowed] == []


@pytest.mark.parametrize("path", PLAN, ids=lambda path: path.name)
def test_plan_is_short_functions_of_numbers(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < MAX_FUNCTION, node.name
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in [*names, node.module] if isinstance(node, ast.ImportFrom) else names:
            first, *rest = name.split(".")
            ours = first == "streamplug" and (rest[0] in PURE_OURS or name in PURE_MODULES)
            assert ours or first in PURE, name


def _named(path):
    return str(path.relative_to(ROOT))


@cache
def _asserts_and_imports(path):
    """Return the lines of a file's assertions, and the packages that it imports."""
    asserts, imported = [], set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assert):
            asserts.append(node.lineno)
        elif isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    return asserts, imported
