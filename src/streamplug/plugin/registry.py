"""From a name to its class: registrations of this process, built-ins, then installed plugins."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamplug import interfaces
from streamplug.errors import (
    AmbiguousNameError,
    BrokenPluginError,
    NameTakenError,
    PluginError,
    UnknownNameError,
)
from streamplug.plugin.catalog import CATALOG
from streamplug.plugin.kinds import KINDS
from streamplug.plugin.provider import Provider

if TYPE_CHECKING:
    from streamplug.plugin.discovery import Found

Registrations = dict[str, dict[str, type[Any]]]

_registered: Registrations = {kind: {} for kind in KINDS}
_resolved: dict[tuple[str, str], type[Any]] = {}


def register(kind: str, name: str, cls: type[Any], *, replace: bool = False) -> None:
    """Give a class a name in this process and in the loader workers that it starts.

    Args:
        kind: Kind of plugin.
        name: Lower case, no colon.
        cls: A subclass of the kind's interface.
        replace: Whether to take the place of an earlier registration or of a plugin's name.

    Raises:
        NameTakenError: If the name is a built-in's, or in use and `replace` is false.
        PluginError: If the name is malformed or the class does not implement the interface.
    """
    Provider(name, "registered:Class")  # checks the spelling of the name
    _check(kind, name, cls, "register_" + kind)
    if name in KINDS[kind].builtin:
        raise NameTakenError(f"{kind} {name!r} is built in; built-in names are reserved")
    known = _registered[kind].get(name)
    if not replace and not _same_class(known, cls):
        taken = "an earlier registration" if known else ""
        if not taken and (found := _inventory_providers(kind, name)):
            taken = found[0].provider
        if taken:
            raise NameTakenError(
                f"{kind} {name!r} is already provided by {taken}; pass replace=True to take its "
                "place"
            )
    _registered[kind][name] = cls


def _same_class(known: type[Any] | None, cls: type[Any]) -> bool:
    # A notebook cell that is run again makes a new class of the same name.
    return known is not None and (known.__module__, known.__qualname__) == (
        cls.__module__,
        cls.__qualname__,
    )


def unregister(kind: str, name: str) -> None:
    """Take back a registration; unknown names are ignored."""
    _registered[kind].pop(name, None)


def registrations() -> Registrations:
    """Return a copy of this process's registrations, to be restored in another process."""
    return {kind: dict(classes) for kind, classes in _registered.items()}


def restore(saved: Mapping[str, Mapping[str, type[Any]]]) -> None:
    """Take over the registrations of another process; those of this one win."""
    for kind, classes in saved.items():
        for name, cls in classes.items():
            _registered[kind].setdefault(name, cls)


def forget() -> None:
    """Drop what was found and resolved, so that the next name is looked for afresh."""
    from streamplug.plugin.discovery import inventory

    inventory.cache_clear()
    _resolved.clear()


def resolve(kind: str, name: str) -> type[Any]:
    """Return the class behind a name, which may be qualified as ``distribution:name``.

    Raises:
        UnknownNameError: If nothing provides it; the text says what may be meant or installed.
        AmbiguousNameError: If several distributions do.
        BrokenPluginError: If its plugin does not import, or is not what it must be.
    """
    cls = _registered[kind].get(name) or _resolved.get((kind, name))
    if cls is None:
        cls = _resolved[kind, name] = _find(kind, name)
    return cls


def known(kind: str, name: str) -> bool:
    """Say whether something answers to a name; a name with no built-in looks for plugins."""
    return (
        name in _registered[kind]
        or name in KINDS[kind].builtin
        or bool(_inventory_providers(kind, name))
    )


def names_of(kind: str) -> list[str]:
    """Return all names that something answers to, sorted."""
    from streamplug.plugin.discovery import inventory

    return sorted({*KINDS[kind].builtin, *_registered[kind], *inventory().names(kind)})


def make(kind: str, spec: str) -> Any:
    """Make an object from its spec: ``name``, ``name:argument``, each also ``distribution:…``.

    Raises:
        PluginError: As `resolve`.
        ConfigError: If the argument has no meaning for the class.
    """
    head, colon, tail = spec.partition(":")
    if colon and not known(kind, head):
        name, inner, argument = tail.partition(":")
        if _inventory_providers(kind, f"{head}:{name}"):
            return resolve(kind, f"{head}:{name}").from_spec(argument if inner else None)
    return resolve(kind, head).from_spec(tail if colon else None)


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Let errors about finding plugins begin with what needs them, such as the URL of a data set."""
    try:
        yield
    except PluginError as error:
        raise type(error)(f"{what}: {error}") from error.__cause__


def _inventory_providers(kind: str, name: str) -> list[Found]:
    from streamplug.plugin.discovery import inventory, normalize

    distribution, colon, short = name.partition(":")
    if not colon:
        return inventory().providers(kind, name)
    found = inventory().providers(kind, short)
    return [f for f in found if f.distribution == normalize(distribution)]


def _find(kind: str, name: str) -> type[Any]:
    builtin = KINDS[kind].builtin.get(name)
    if builtin is not None:
        return load(kind, name, builtin, "streamplug")
    found = _inventory_providers(kind, name)
    if not found:
        raise UnknownNameError(_unknown_text(kind, name))
    if len(found) > 1:
        who = " and ".join(f.provider for f in found)
        ways = " or ".join(f"'{f.distribution}:{name}'" for f in found)
        raise AmbiguousNameError(
            f"{kind} {name!r} is provided by {who}; write {ways}, or name one of them in "
            "STREAMPLUG_DISABLE_PLUGINS"
        )
    return load(kind, name, found[0].target, found[0].provider)


def load(kind: str, name: str, target: str, provider: str) -> type[Any]:
    """Import a target and check that it implements its kind's interface.

    Raises:
        BrokenPluginError: If it does not import or does not.
    """
    module, _, attribute = target.partition(":")
    try:
        cls: type[Any] = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise BrokenPluginError(
            f"{kind} {name!r} comes from {provider}, which cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    try:
        _check(kind, name, cls, provider)
    except PluginError as error:
        raise BrokenPluginError(str(error)) from None
    return cls


def _check(kind: str, name: str, cls: object, provider: str) -> None:
    base = getattr(interfaces, KINDS[kind].base)
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise PluginError(
            f"{provider} gives {cls!r} as {kind} {name!r}; expected a subclass of {base.__name__}"
        )
    if abstract := sorted(getattr(cls, "__abstractmethods__", ())):
        raise PluginError(f"{kind} {name!r} from {provider} lacks {', '.join(abstract)}")
    version: int = cls.api_version  # type: ignore[attr-defined]  # it derives from base
    if version != base.api_version:
        raise PluginError(
            f"{kind} {name!r} from {provider} was written for version {version} of "
            f"{base.__name__}; this streamplug has version {base.api_version}"
        )


def _unknown_text(kind: str, name: str) -> str:
    from streamplug.plugin.discovery import inventory

    found = inventory()
    available = names_of(kind)
    lines = [f"unknown {kind} {name!r}.{_hint(kind, name, set(available))}"]
    lines.append(f"Available: {', '.join(available)}")
    for entry in found.found:
        if entry.status == "broken":
            lines.append(f"Note: {entry.provider} is installed but failed to load ({entry.reason})")
        elif entry.status == "disabled":
            lines.append(f"Note: {entry.provider} is disabled ({entry.reason})")
        elif entry.status == "rejected" and entry.name == name.rpartition(":")[2]:
            lines.append(f"Note: {entry.provider} provides it, but was refused ({entry.reason})")
    return "\n".join(lines)


def _hint(kind: str, name: str, available: set[str]) -> str:
    from streamplug.plugin.discovery import inventory

    catalog = CATALOG[kind]
    short = name.rpartition(":")[2]
    if others := [f.provider for f in inventory().providers(kind, short)]:
        return f" {short!r} is provided by {' and '.join(others)}."
    if distribution := catalog.get(name):
        if any(f.distribution == distribution for f in inventory().found):
            return f" It is provided by {distribution}, which is installed but not in use."
        install = f"pip install {distribution}"
        return f" It is provided by {distribution}, which is not installed: {install}"
    # The default cutoff of 0.6 misses short names, such as 'zsd' for 'zstd'.
    close = difflib.get_close_matches(name.lower(), {*available, *catalog}, 3, 0.5)
    if not close:
        return ""
    swapped = (found for found in close if sorted(found) == sorted(name.lower()))
    best = next(swapped, close[0])
    install = "" if best in available else f" (pip install {catalog[best]})"
    return f" Did you mean {best!r}?{install}"


def blank(pickled_class: bytes) -> Any:
    """Return an instance, as yet without state, of a class that was pickled by value or by name."""
    import cloudpickle

    cls = cloudpickle.loads(pickled_class)
    return cls.__new__(cls)
