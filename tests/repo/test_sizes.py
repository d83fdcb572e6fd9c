"""What keeps the packages small and plain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "streamplug"
FILES = sorted([*CORE.rglob("*.py"), *ROOT.glob("plugins/streamplug-*/src/**/*.py")])
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
TESTING = ROOT / "plugins" / "streamplug-testing"
PIPELINES = ROOT / "plugins" / "streamplug-webdataset" / "src" / "streamplug_webdataset"
MOSAIC = ROOT / "plugins" / "streamplug-mosaic" / "src" / "streamplug_mosaic" / "compat"
TORCH = (
    CORE / "adapters" / "torch.py", CORE / "adapters" / "torch_batches.py",
    CORE / "adapters" / "torch_device.py", CORE / "adapters" / "torch_transform.py",
    CORE / "adapters" / "torch_transfers.py",
    ROOT / "plugins" / "streamplug-torch",
    ROOT / "plugins" / "streamplug-packing" / "src" / "streamplug_packing" / "loader.py",
    ROOT / "plugins" / "streamplug-image" / "src" / "streamplug_image" / "device_jpegs.py",
    ROOT / "plugins" / "streamplug-image" / "src" / "streamplug_image" / "resampler.py",
    PIPELINES / "iterable_dataset.py", PIPELINES / "loader.py",
    MOSAIC / "distributed.py", MOSAIC / "loader.py",
)  # fmt: skip
MAX_LINES = 400
MAX_FUNCTION = 40
PLAN = [path for path in FILES if CORE / "plan" in path.parents]
# Nothing of the machine: no files, no threads, no clock, no chance.
PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "fractions", "functools", "hashlib", "heapq",
    "itertools", "math",
    "numpy", "reprlib", "typing",
}  # fmt: skip
PURE_OURS = ("errors", "interfaces", "plan", "types")
PURE_MODULES = ("streamplug.plugin_kit.shuffle_order",)


@EACH
def test_file_is_short(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


@EACH
def test_file_has_no_assert(path):
    if TESTING in path.parents:
        pytest.skip("tests are made of them")
    found = [node.lineno for node in ast.walk(_parsed(path)) if isinstance(node, ast.Assert)]
    assert not found, f"lines {found}: raise an error of streamplug.errors instead"


@EACH
def test_file_leaves_torch_alone(path):
    if path in TORCH or any(place in path.parents for place in TORCH):
        pytest.skip("the place for torch")
    imported = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    assert "torch" not in imported


@pytest.mark.parametrize("path", PLAN, ids=lambda path: path.name)
def test_plan_is_short_functions_of_numbers(path):
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < MAX_FUNCTION, node.name
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in [*names, node.module] if isinstance(node, ast.ImportFrom) else names:
            first, *rest = name.split(".")
            ours = first == "streamplug" and (rest[0] in PURE_OURS or name in PURE_MODULES)
            assert ours or first in PURE, name


def _parsed(path):
    return ast.parse(path.read_text())
