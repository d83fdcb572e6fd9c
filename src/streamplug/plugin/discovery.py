"""Finds installed plugins, once per process, each one isolated from the failures of the others.

pluggy's own loader stops at the first plugin that fails to import, and drops a second distribution
with the same entry name without a word; so this one loads each entry point by itself, and keeps an
inventory of what it found and what went wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import pluggy

from streamplug.errors import BrokenPluginError
from streamplug.plugin import hookspecs
from streamplug.plugin.kinds import KINDS, Kind
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


def disabled_reason(distribution: str) -> str:
    """Return why the environment disables a distribution, by its normal name; empty if it does not."""
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
    found: list[Found] = []
    for point in sorted(entry_points(group=hookspecs.PROJECT), key=_sort_key):
        found += _load(point)
    whole = Inventory(tuple(_mark_ambiguous(_without_repeats(found))))
    if whole.failures and os.environ.get("STREAMPLUG_STRICT_PLUGINS", "") not in ("", "0"):
        failure = whole.failures[0]
        raise BrokenPluginError(f"{failure.provider} failed to load: {failure.reason}")
    return whole


def _sort_key(point: EntryPoint) -> tuple[str, str]:
    # By name, not by place on sys.path: the order must be the same on every machine.
    return (normalize(point.dist.name) if point.dist else "", point.name)


def _load(point: EntryPoint) -> list[Found]:
    dist = normalize(point.dist.name) if point.dist else ""
    plugin = Found("", "", dist, point.dist.version if point.dist else "", point.value)
    if reason := disabled_reason(dist):
        return [replace(plugin, status=DISABLED, reason=reason)]
    # A manager of its own: one for all would drop the second of two plugins of the same name, and
    # refuse two distributions that name the same module.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(point.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one plugin must not stop others
        return [replace(plugin, status=BROKEN, reason=_describe(error))]
    return list(_declared(manager, plugin))


def _declared(manager: pluggy.PluginManager, plugin: Found) -> Iterator[Found]:
    kinds = {kind.hook: kind for kind in KINDS.values()}
    for hook, caller in sorted(vars(manager.hook).items()):
        for impl in caller.get_hookimpls():
            if hook in kinds:
                yield from _provided(kinds[hook], impl, plugin)
            elif not impl.optionalhook:
                reason = f"unknown hook {hook}; known: {', '.join(kinds)}"
                yield replace(plugin, status=BROKEN, reason=reason)


def _provided(kind: Kind, impl: pluggy.HookImpl, plugin: Found) -> Iterator[Found]:
    try:
        providers = _checked(impl.function(), kind.hook)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told, and stops no other
        yield replace(plugin, kind=kind.name, status=BROKEN, reason=_describe(error))
        return
    for provider in providers:
        for name in provider.names:
            entry = replace(plugin, kind=kind.name, name=name, target=provider.target)
            if name in kind.builtin:
                reason = f"{name!r} is a built-in {kind.name}; built-in names are reserved"
                entry = replace(entry, status=REJECTED, reason=reason)
            yield entry


def _checked(returned: object, hook: str) -> list[Provider]:
    providers = list(returned) if isinstance(returned, Iterable) else [returned]
    good = [provider for provider in providers if isinstance(provider, Provider)]
    if isinstance(returned, Iterable) and len(good) == len(providers):
        return good
    wrong = next((p for p in providers if not isinstance(p, Provider)), returned)
    raise TypeError(f"{hook} must return a list of Provider objects, got {type(wrong).__name__}")


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _without_repeats(found: list[Found]) -> list[Found]:
    """Reject a name that a distribution gives to two classes: nobody could choose one."""
    targets: dict[tuple[str, str, str], str] = {}
    kept: list[Found] = []
    for entry in found:
        key = (entry.distribution, entry.kind, entry.name)
        target = targets.setdefault(key, entry.target) if entry.status == OK else entry.target
        if target != entry.target:
            reason = f"{entry.name!r} is already {target} of the same distribution"
            kept.append(replace(entry, status=REJECTED, reason=reason))
        elif entry not in kept:
            kept.append(entry)
    return kept


def _mark_ambiguous(found: list[Found]) -> Iterator[Found]:
    for entry in found:
        rivals = [
            f.provider
            for f in found
            if entry.status == f.status == OK and (f.kind, f.name) == (entry.kind, entry.name)
        ]
        if len(rivals) > 1:
            yield replace(entry, status=AMBIGUOUS, reason="provided by " + " and ".join(rivals))
        else:
            yield entry
