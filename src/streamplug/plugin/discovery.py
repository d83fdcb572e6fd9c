"""Finds installed plugins, once per process, each one isolated from the failures of the others.

pluggy's own loader stops at the first plugin that fails to import, and drops a second distribution
with the same entry name without a word; so this one registers each entry point by itself under
``distribution:entry`` and keeps an inventory of what it found and what went wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import pluggy

from streamplug.errors import BrokenPluginError
from streamplug.plugin import hookspecs
from streamplug.plugin.kinds import KINDS
from streamplug.plugin.provider import Provider

OK, DISABLED, BROKEN, REJECTED, AMBIGUOUS = "ok", "disabled", "broken", "rejected", "ambiguous"


@dataclass(frozen=True, slots=True)
class Found:
    """One name that one distribution provides, or (kind and name empty) a plugin as a whole.

    Attributes:
        kind: Kind of plugin.
        name: The name or alias.
        distribution: Who provides it; ``"streamplug"`` for a built-in.
        version: That distribution's version.
        target: ``"package.module:Class"``.
        status: ``ok``, ``disabled``, ``broken``, ``rejected`` or ``ambiguous``.
        reason: Why it is not ok.
    """

    kind: str
    name: str
    distribution: str
    version: str
    target: str = ""
    status: str = OK
    reason: str = ""

    @property
    def provider(self) -> str:
        """Distribution and version, as errors show them."""
        return f"{self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that was found among the installed plugins."""

    found: tuple[Found, ...]

    def providers(self, kind: str, name: str) -> list[Found]:
        """Return the usable providers of a name: one, or several if it is ambiguous."""
        return [
            f
            for f in self.found
            if f.kind == kind and f.name == name and f.status in (OK, AMBIGUOUS)
        ]

    def names(self, kind: str) -> set[str]:
        """Return the names that plugins provide for a kind."""
        return {f.name for f in self.found if f.kind == kind and f.status in (OK, AMBIGUOUS)}

    @property
    def failures(self) -> list[Found]:
        """The plugins that could not be loaded, or not wholly."""
        return [f for f in self.found if f.status == BROKEN]


def normalize(distribution: str) -> str:
    """Return a distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _listed(variable: str) -> set[str] | None:
    """Return the distributions that an environment variable lists, or None if it is not set."""
    value = os.environ.get(variable)
    if value is None:
        return None
    return {normalize(name) for name in re.split(r"[,\s]+", value) if name}


def _why_disabled(distribution: str) -> str:
    allowed = _listed("STREAMPLUG_PLUGINS")
    if allowed is not None and distribution not in allowed:
        return "not in STREAMPLUG_PLUGINS"
    if distribution in (_listed("STREAMPLUG_DISABLE_PLUGINS") or ()):
        return "in STREAMPLUG_DISABLE_PLUGINS"
    return ""


@cache
def inventory() -> Inventory:
    """Return what the installed plugins provide; looks for them at the first call only.

    Raises:
        BrokenPluginError: If a plugin fails to load and ``STREAMPLUG_STRICT_PLUGINS`` is set.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    found: list[Found] = []
    for point in sorted(entry_points(group=hookspecs.PROJECT), key=_sort_key):
        found += _load(manager, point)
    if os.environ.get("STREAMPLUG_STRICT_PLUGINS", "") not in ("", "0"):
        for failure in (f for f in found if f.status == BROKEN):
            raise BrokenPluginError(f"{failure.provider} failed to load: {failure.reason}")
    return Inventory(tuple(_mark_ambiguous(found)))


def _sort_key(point: EntryPoint) -> tuple[str, str]:
    # By name, not by place on sys.path: the order must be the same on every machine.
    return (normalize(point.dist.name) if point.dist else "", point.name)


def _load(manager: pluggy.PluginManager, point: EntryPoint) -> list[Found]:
    dist = normalize(point.dist.name) if point.dist else ""
    plugin = Found("", "", dist, point.dist.version if point.dist else "", point.value)
    if reason := _why_disabled(dist):
        return [replace(plugin, status=DISABLED, reason=reason)]
    key = f"{dist}:{point.name}"
    try:
        manager.register(point.load(), key)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not stop others
        return [replace(plugin, status=BROKEN, reason=_describe(error))]
    return list(_declared(manager, key, plugin))


def _declared(manager: pluggy.PluginManager, key: str, plugin: Found) -> Iterator[Found]:
    callers = manager.get_hookcallers(manager.get_plugin(key)) or []
    for caller in callers:
        kind = next((k for k in KINDS.values() if k.hook == caller.name), None)
        if kind is None:
            known = ", ".join(k.hook for k in KINDS.values())
            yield replace(
                plugin, status=BROKEN, reason=f"unknown hook {caller.name}; known: {known}"
            )
            continue
        impl = next(i for i in caller.get_hookimpls() if i.plugin_name == key)
        try:
            # Called one by one: in a hook call over all plugins, the first to raise ends it.
            providers = [_checked(p, caller.name) for p in impl.function()]  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001
            yield replace(plugin, kind=kind.name, status=BROKEN, reason=_describe(error))
            continue
        for provider in providers:
            for name in provider.names:
                entry = replace(plugin, kind=kind.name, name=name, target=provider.target)
                if name in kind.builtin:
                    reason = f"{name!r} is a built-in {kind.name}; built-in names are reserved"
                    entry = replace(entry, status=REJECTED, reason=reason)
                yield entry


def _checked(provider: object, hook: str) -> Provider:
    if not isinstance(provider, Provider):
        raise TypeError(f"{hook} must return Provider objects, got {type(provider).__name__}")
    return provider


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _mark_ambiguous(found: list[Found]) -> Iterator[Found]:
    for entry in found:
        rivals = [
            f.provider
            for f in found
            if entry.name
            and entry.status == f.status == OK
            and (f.kind, f.name) == (entry.kind, entry.name)
        ]
        if len(rivals) > 1:
            yield replace(entry, status=AMBIGUOUS, reason="provided by " + " and ".join(rivals))
        else:
            yield entry
