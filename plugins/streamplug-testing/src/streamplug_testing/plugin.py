"""Conformance tests of plugin distributions, for plugin authors to subclass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, EntryPoint, distribution
from typing import ClassVar

import pytest

from streamplug.errors import PluginError
from streamplug.plugin import PROJECT, PluginEntry, inventory, load_class, normalize
from streamplug_testing.deviations import ConformanceBase

_PIN = re.compile(r"streamplug\s*\(?([<>=~!][^;)]*|)\)?\s*(;.*)?")

_FOREIGN = """
import importlib, json, sys
from streamplug.plugin import hookimpl
before = set(sys.modules)
importlib.import_module(sys.argv[1])
ours = {"streamplug", sys.argv[1].partition(".")[0], *sys.stdlib_module_names}
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(new - ours)))
"""


class PluginTests(ConformanceBase):
    """Tests of an installed distribution.

    Attributes:
        distribution: Name of the distribution, such as ``"streamplug-zstandard"``.
    """

    distribution: ClassVar[str] = ""

    @pytest.fixture
    def installed(self) -> Distribution:
        """The distribution's metadata."""
        return distribution(self.distribution)

    @pytest.fixture
    def points(self, installed: Distribution) -> list[EntryPoint]:
        """The entry points for streamplug."""
        return [point for point in installed.entry_points if point.group == PROJECT]

    @pytest.fixture
    def entries(self) -> list[PluginEntry]:
        """The provided names, with their errors."""
        name = normalize(self.distribution)
        return [entry for entry in inventory().entries if entry.distribution == name]

    def test_pins_streamplug(self, installed: Distribution) -> None:
        pins = [match[1] for r in installed.requires or () if (match := _PIN.fullmatch(r))]
        assert len(pins) == 1, f"{self.distribution} does not depend on streamplug"
        [pin] = pins
        bounded = ("~=" in pin) or ("==" in pin) or ("<" in pin and ">=" in pin)
        assert bounded, f"streamplug{pin}: give the lowest and the first unsupported version"

    def test_has_entry_points(self, points: list[EntryPoint]) -> None:
        assert points, f"{self.distribution} has no entry point in the group {PROJECT!r}"

    def test_provides_names_and_nothing_is_wrong(self, entries: list[PluginEntry]) -> None:
        assert [entry for entry in entries if entry.name], f"{self.distribution} provides no name"
        unusable = [entry for entry in entries if not entry.is_usable]
        wrong = [f"{e.kind} {e.name}: {e.status}: {e.reason}" for e in unusable]
        assert not wrong, "\n".join(wrong)

    def test_every_target_is_what_it_must_be(self, entries: list[PluginEntry]) -> None:
        wrong = []
        for entry in (entry for entry in entries if entry.is_usable):
            try:
                load_class(entry.kind, entry.name, entry.target, entry.provider)
            except PluginError as error:
                wrong.append(str(error))
        assert not wrong, "\n".join(wrong)

    def test_looking_for_names_imports_nothing_foreign(self, points: list[EntryPoint]) -> None:
        for point in points:
            result = subprocess.run(  # noqa: S603
                [sys.executable, "-c", _FOREIGN, point.module],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert result.returncode == 0, result.stderr
            foreign = json.loads(result.stdout)
            assert not foreign, (
                f"{point.value} imports {', '.join(foreign)}: every user of streamplug pays for "
                "that; import it in the target's module"
            )
