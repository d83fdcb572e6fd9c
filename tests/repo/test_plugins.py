"""Every distribution below plugins/, by the tests that outside authors have too."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from streamplug_testing.plugin import PluginTests

ROOT = Path(__file__).parents[2]
# Users import these, or they bring commands; nothing looks for names in them.
NO_PLUGINS = {
    "streamplug-datasets",
    "streamplug-packing",
    "streamplug-simulate",
    "streamplug-testing",
    "streamplug-tokens",
}
DISTRIBUTIONS = sorted(
    {path.parent.name for path in ROOT.glob("plugins/streamplug-*/pyproject.toml")} - NO_PLUGINS
)


def is_installed(name):
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def suite(name):
    class Suite(PluginTests):
        distribution = name

    if not is_installed(name):
        Suite.pytestmark = pytest.mark.skip(reason=f"{name} is not installed")
    return Suite


for each in DISTRIBUTIONS:
    stem = each.removeprefix("streamplug-").title().replace("-", "")
    globals()[f"Test{stem}"] = suite(each)
