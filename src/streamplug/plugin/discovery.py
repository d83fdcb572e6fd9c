"""Discovery of installed plugins, isolated from each other's failures.

Unlike pluggy's own loader, which stops at the first plugin that fails to import and silently drops a
second distribution with the same entry name, this one loads each entry point by itself and records
failures. Public names that distributions add to `streamplug` are found in the same way.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from streamplug.errors import BrokenPluginError, ConfigError
from streamplug.plugin.catalog import load_catalog
from streamplug.plugin.core_version import excluding_requirement
from streamplug.plugin.kinds import KINDS
from streamplug.plugin.provider import Provider

PROJECT = "streamplug"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
HOOK = "streamplug_plugins"
OK, DISABLED, BROKEN, REJECTED, AMBIGUOUS = "ok", "disabled", "broken", "rejected", "ambiguous"

UNNAMED = "(unnamed)"

_DISTRIBUTION = re.compile(rf"[A-Za-z0-9._-]+|{re.escape(UNNAMED)}")
NAMES_GROUP = "streamplug.names"
"""Entry point group of the names; values are ``module:attribute``."""
SECTIONS_GROUP = "streamplug.sections"
"""Entry point group of the classes that sections of configs describe if they have a key, such as
``dataset.tokens``; values are ``module:attribute``."""


@hookspec
def streamplug_plugins() -> Iterable[Provider]:  # type: ignore[empty-body]  # pluggy calls only what implements it
    """Return what a distribution provides.

    Each target is a subclass of its kind's interface, and is imported when its name is used.
    """


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """A name that a distribution provides, or (with empty kind and name) a plugin as a whole.

    Attributes:
        kind: Kind of plugin.
        name: Name or alias.
        distribution: Distribution that provides it; ``"streamplug"`` for built-ins.
        version: Version of the distribution.
        target: ``"package.module:Class"``.
        status: ``ok``, ``disabled``, ``broken``, ``rejected`` or ``ambiguous``.
        reason: Reason if the status is not ok.
        manifest: Manifest of the source, as for `Provider`.
    """

    kind: str
    name: str
    distribution: str
    version: str
    target: str = ""
    status: str = OK
    reason: str = ""
    manifest: str = ""

    @property
    def provider(self) -> str:
        """Distribution and version, for error messages."""
        return f"{self.distribution} {self.version}".rstrip()

    @property
    def is_usable(self) -> bool:
        """Whether the name can be resolved, possibly only when qualified by the distribution."""
        return self.status in (OK, AMBIGUOUS)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The entries of all installed plugins."""

    entries: tuple[PluginEntry, ...]

    def providers(self, kind: str, name: str) -> list[PluginEntry]:
        """Return the usable entries of a name: one, or several if it is ambiguous."""
        return [e for e in self.entries if (e.kind, e.name) == (kind, name) and e.is_usable]

    def names(self, kind: str) -> set[str]:
        """Return the names that plugins provide for a kind."""
        return {e.name for e in self.entries if e.kind == kind and e.is_usable}

    @property
    def manifests(self) -> dict[str, str]:
        """Name of the source of each manifest."""
        return {e.manifest: e.name for e in self.entries if e.is_usable and e.manifest}

    @property
    def failures(self) -> list[PluginEntry]:
        """The plugins that failed to load."""
        return [e for e in self.entries if e.status == BROKEN]


def normalize(distribution: str) -> str:
    """Return the normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def distribution_of(point: EntryPoint) -> str:
    """Return the normalized name of an entry point's distribution; `UNNAMED` if its metadata lack it."""
    if point.dist is None:
        return ""
    name = ""
    with suppress(LookupError, OSError):  # an interrupted installation leaves none, or no metadata
        metadata = point.dist.metadata
        if "Name" in metadata:  # Python 3.13 warns of a missing one
            name = metadata["Name"]
    return normalize(name or UNNAMED)


def _distributions_in(variable: str) -> set[str] | None:
    """Return the distributions in an environment variable, or None if it is not set."""
    value = os.environ.get(variable)
    if value is None:
        return None
    names = [name for name in re.split(r"[,\s]+", value) if name]
    if malformed := [name for name in names if not _DISTRIBUTION.fullmatch(name)]:
        raise ConfigError(
            f"environment variable {variable}: {malformed[0]!r:.80} is no name of a distribution; separate "
            "names by commas or spaces"
        )
    return set(map(normalize, names))


def disabled_reason(distribution: str) -> str:
    """Return why the environment disables a distribution (normalized name); empty if it does not."""
    allowed = _distributions_in("STREAMPLUG_PLUGINS")
    if allowed is not None and distribution not in allowed:
        return "not in STREAMPLUG_PLUGINS"
    if distribution in (_distributions_in("STREAMPLUG_DISABLE_PLUGINS") or ()):
        return "in STREAMPLUG_DISABLE_PLUGINS"
    return ""


def excluded_reason(point: EntryPoint) -> str:
    """Return why the distribution of an entry point is for other versions of the core; empty if it is not."""
    if requirement := excluding_requirement(point.dist):
        core = importlib.metadata.version("streamplug")
        return f"it needs {requirement}, and streamplug {core} is installed: upgrade one of them"
    return ""


@cache
def inventory() -> Inventory:
    """Return the entries of the installed plugins, loading them at the first call.

    Raises:
        BrokenPluginError: If a plugin fails to load and ``STREAMPLUG_STRICT_PLUGINS`` is set.
        ConfigError: If a variable that names distributions is malformed.
    """
    entries: list[PluginEntry] = []
    for point in sorted(importlib.metadata.entry_points(group=PROJECT), key=_sort_key):
        entries += _load_entry_point(point)
    checked = Inventory(tuple(_mark_ambiguous(_reject_conflicts(entries))))
    if os.environ.get("STREAMPLUG_STRICT_PLUGINS", "") not in ("", "0"):
        for failure in checked.failures:
            raise BrokenPluginError(f"{failure.provider} failed to load: {failure.reason}")
    return checked


def _sort_key(point: EntryPoint) -> tuple[str, str]:
    # Not by position on sys.path: the order must be the same on all machines.
    return (distribution_of(point), point.name)


def _load_entry_point(point: EntryPoint) -> list[PluginEntry]:
    dist = distribution_of(point)
    version = point.dist.version if point.dist and dist != UNNAMED else ""
    plugin = PluginEntry("", "", dist, version or "", point.value)
    if reason := disabled_reason(dist):
        return [replace(plugin, status=DISABLED, reason=reason)]
    if point.dist and dist == UNNAMED:
        reason = (
            f"a distribution in {point.dist.locate_file('')} has the plugin {point.name!r} but no name in "
            "its metadata: remove its .dist-info directory and install it again"
        )
    else:
        reason = excluded_reason(point)
    if not reason:
        # One manager per plugin: a common one would drop the second of two plugins of one name, and
        # refuse two distributions that name the same module.
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(sys.modules[__name__])
        try:
            manager.register(point.load())
            return list(_entries_of(manager, plugin))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - one plugin must not stop others
            reason = f"{type(error).__name__}: {error}"
    return [replace(plugin, status=BROKEN, reason=reason)]


def _entries_of(manager: pluggy.PluginManager, plugin: PluginEntry) -> Iterator[PluginEntry]:
    for hook, caller in sorted(vars(manager.hook).items()):
        for implementation in caller.get_hookimpls():
            if hook == HOOK:
                for provider in _check_providers(implementation.function()):
                    yield from _entries_of_provider(provider, plugin)
            elif not implementation.optionalhook:
                reason = f"unknown hook {hook}; expected {HOOK}"
                yield replace(plugin, status=BROKEN, reason=reason)


def _entries_of_provider(provider: Provider, plugin: PluginEntry) -> Iterator[PluginEntry]:
    kind = KINDS.get(provider.kind)
    for name in provider.names:
        reason = ""
        if kind is None:
            reason = f"unknown kind {provider.kind!r}; expected one of {', '.join(KINDS)}"
        elif name in kind.builtin:
            reason = f"{name!r} is a built-in {kind.name}; built-in names are reserved"
        yield replace(
            plugin,
            kind=provider.kind,
            name=name,
            target=provider.target,
            status=REJECTED if reason else OK,
            reason=reason,
            manifest=provider.manifest if name == provider.name else "",
        )


def _check_providers(returned: object) -> list[Provider]:
    providers = list(returned) if isinstance(returned, Iterable) else [returned]
    valid = [provider for provider in providers if isinstance(provider, Provider)]
    if isinstance(returned, Iterable) and len(valid) == len(providers):
        return valid
    invalid = next((p for p in providers if not isinstance(p, Provider)), returned)
    raise TypeError(f"{HOOK} must return a list of Provider objects, got {type(invalid).__name__}")


def _reject_conflicts(entries: list[PluginEntry]) -> list[PluginEntry]:
    """Reject a name that one distribution maps to two classes."""
    targets: dict[tuple[str, str, str], str] = {}
    checked: list[PluginEntry] = []
    for entry in entries:
        key = (entry.distribution, entry.kind, entry.name)
        target = targets.setdefault(key, entry.target) if entry.status == OK else entry.target
        if target != entry.target:
            reason = f"{entry.name!r} is already {target} of the same distribution"
            checked.append(replace(entry, status=REJECTED, reason=reason))
        elif entry not in checked:
            checked.append(entry)
    return checked


def _mark_ambiguous(entries: list[PluginEntry]) -> Iterator[PluginEntry]:
    for entry in entries:
        providers = [
            e.provider
            for e in entries
            if entry.status == e.status == OK and (e.kind, e.name) == (entry.kind, entry.name)
        ]
        if len(providers) > 1:
            reason = "provided by " + " and ".join(providers)
            yield replace(entry, status=AMBIGUOUS, reason=reason)
        else:
            yield entry


def load_name(name: str) -> Any:
    """Return the object that an installed distribution adds to `streamplug` by a name.

    Raises:
        AttributeError: If no distribution of ours has the name.
        ImportError: If its distribution is not installed, is disabled, or cannot be imported.
    """
    found = _load_added(NAMES_GROUP, "name", name, name)
    if found is None:
        raise AttributeError(f"module 'streamplug' has no attribute {name!r}")
    return found


def load_section(name: str, shown: str) -> Any:
    """Return the class that a section of a config describes if it has a key; None if nothing is known of it.

    Args:
        name: Section and key, such as ``dataset.tokens``.
        shown: Path of the key in the config, for errors.

    Raises:
        ImportError: If its distribution is not installed, is disabled, or cannot be imported.
    """
    return _load_added(SECTIONS_GROUP, "section", name, shown)


def section_keys() -> list[str]:
    """Return the sections and keys, such as ``dataset.tokens``, for which classes are installed."""
    points = importlib.metadata.entry_points(group=SECTIONS_GROUP)
    return sorted({point.name for point in points if not disabled_reason(distribution_of(point))})


def _load_added(group: str, kind: str, name: str, shown: str) -> Any:
    """Return the object of the only entry point of a name; None if no distribution of ours has the name."""
    points = [point for point in importlib.metadata.entry_points(group=group) if point.name == name]
    if len(points) > 1:
        providers = " and ".join(sorted(map(distribution_of, points)))
        raise ImportError(f"{shown} is in {providers}: uninstall one")
    for point in points:
        if reason := disabled_reason(distribution_of(point)):
            raise ImportError(
                f"{shown} is in {distribution_of(point)}, which is disabled: {reason}"
            )
        if reason := excluded_reason(point):
            raise ImportError(f"{shown} is in {distribution_of(point)}: {reason}")
        return point.load()
    if distribution := load_catalog().get(kind, {}).get(name):
        raise ImportError(
            f"{shown} is in {distribution}, which is not installed: pip install {distribution}"
        )
    return None
