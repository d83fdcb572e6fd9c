"""From a name to a class or an object: registrations, built-ins, installed plugins, and suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamplug.errors import (
    AmbiguousNameError,
    BrokenPluginError,
    ConfigError,
    NameTakenError,
    PluginError,
    StreamplugError,
    UnknownNameError,
    class_name,
)
from streamplug.plugin.catalog import load_catalog
from streamplug.plugin.kinds import KINDS
from streamplug.plugin.provider import ANY_SCHEME, check_name

if TYPE_CHECKING:
    from streamplug.plugin.discovery import PluginEntry

Registrations = dict[str, dict[str, type[Any]]]

_UNNAMED_SOURCES = ("index", "files", "where")
"""Sources that other options choose than `format`."""

_registered: Registrations = {kind: {} for kind in KINDS}
_restored: set[tuple[str, str]] = set()  # kinds and names that `restore` has added
_resolved: dict[tuple[str, str], type[Any]] = {}


def register(kind: str, name: str, cls: type[Any], *, replace: bool = False) -> None:
    """Register a class under a name, in this process and its loader workers.

    Args:
        kind: Kind of plugin.
        name: Lower case, no colon.
        cls: Subclass of the kind's interface.
        replace: Whether to replace an earlier registration, or a plugin of this name.

    Raises:
        ConfigError: If there is no such kind.
        NameTakenError: If the name is built in, or in use and `replace` is false.
        PluginError: If the name is malformed or the class does not implement the interface.
    """
    _check_kind(kind)
    check_name(name, kind)
    _check_class(kind, name, cls, "register_" + kind)
    if name in KINDS[kind].builtin:
        raise NameTakenError(f"{kind} {name!r} is built in; built-in names are reserved")
    earlier = _registered[kind].get(name)
    if not replace and not _is_same_class(earlier, cls):
        owner = "an earlier registration" if earlier else ""
        if not owner and (entries := _find_entries(kind, name)):
            owner = entries[0].provider
        if owner:
            raise NameTakenError(
                f"{kind} {name!r} is already provided by {owner}; pass replace=True to replace it"
            )
    _registered[kind][name] = cls
    _restored.discard((kind, name))


def _is_same_class(earlier: type[Any] | None, cls: type[Any]) -> bool:
    # Running a notebook cell again creates another class of the same name.
    return earlier is not None and (earlier.__module__, earlier.__qualname__) == (
        cls.__module__,
        cls.__qualname__,
    )


def unregister(kind: str, name: str) -> None:
    """Remove a registration, if it exists."""
    _registered[kind].pop(name, None)


def registrations() -> Registrations:
    """Return a copy of this process's registrations, for `restore` in another process."""
    return {kind: dict(classes) for kind, classes in _registered.items()}


def restore(saved: Mapping[str, Mapping[str, type[Any]]]) -> None:
    """Add the registrations of another process; those that this one has made itself take precedence.

    A worker of a cluster may get tasks of a process that has registered another class meanwhile.
    """
    for kind, classes in saved.items():
        for name, cls in classes.items():
            if name not in _registered[kind] or (kind, name) in _restored:
                _registered[kind][name] = cls
                _restored.add((kind, name))


def clear_caches() -> None:
    """Clear the inventory and all resolved names."""
    from streamplug.plugin.discovery import inventory

    inventory.cache_clear()
    _resolved.clear()


def resolve(kind: str, name: str) -> type[Any]:
    """Return the class of a name, which may be qualified as ``distribution:name``.

    Raises:
        ConfigError: If there is no such kind, or the name is no text.
        UnknownNameError: If nothing provides it; the message suggests names and distributions.
        AmbiguousNameError: If several distributions provide it.
        BrokenPluginError: If its plugin cannot be imported or has the wrong type.
    """
    _check_text(kind, name)
    cls = _registered[kind].get(name) or _resolved.get((kind, name))
    if cls is None:
        cls = _resolved[kind, name] = _resolve(kind, name)
    return cls


def is_known(kind: str, name: object) -> bool:
    """Return whether a name can be resolved; built-in names do not trigger plugin discovery."""
    return isinstance(name, str) and (
        name in _registered[kind] or name in KINDS[kind].builtin or bool(_find_entries(kind, name))
    )


def list_names(kind: str) -> list[str]:
    """Return all names that can be resolved, sorted."""
    from streamplug.plugin.discovery import inventory

    return sorted({*KINDS[kind].builtin, *_registered[kind], *inventory().names(kind)})


def make(kind: str, spec: str) -> Any:
    """Return an object from its spec: ``name`` or ``name:argument``, optionally ``distribution:…``.

    Raises:
        ConfigError: If there is no such kind, the spec is no text, or its argument is invalid.
        PluginError: If the name cannot be resolved, see `resolve`, or its class does not make an object.
    """
    name, argument = split_spec(kind, spec)
    cls = resolve(kind, name)
    try:
        made = cls.from_spec(argument)
    except StreamplugError:
        raise
    except Exception as error:
        raise PluginError(
            f"{kind} {spec!r}: {class_name(cls)}.from_spec raised {type(error).__name__}: {error}"
        ) from error
    base = KINDS[kind].interface_class()
    if not isinstance(made, base):
        raise PluginError(
            f"{kind} {spec!r}: {class_name(cls)}.from_spec returned {type(made).__name__}: {made!r:.80}; "
            f"expected an instance of {base.__name__}"
        )
    return made


def split_spec(kind: str, spec: str) -> tuple[str, str | None]:
    """Return the name in a spec, with its distribution if there is one, and the argument.

    Raises:
        ConfigError: If there is no such kind, or the spec is no text.
    """
    _check_text(kind, spec)
    head, colon, tail = spec.partition(":")
    if colon and not is_known(kind, head):
        name, inner, argument = tail.partition(":")
        if _find_entries(kind, f"{head}:{name}"):
            return f"{head}:{name}", argument if inner else None
    return head, tail if colon else None


def _check_kind(kind: object) -> None:
    if kind not in KINDS:
        raise ConfigError(f"kind={kind!r:.80}: expected one of {', '.join(KINDS)}")


def _check_text(kind: str, spec: object) -> None:
    _check_kind(kind)
    if not isinstance(spec, str):
        example = "".join(f", such as {name!r}" for name in list_names(kind)[:1])
        raise ConfigError(f"{kind}={spec!r:.80}: expected a name{example}")


def _find_entries(kind: str, name: str) -> list[PluginEntry]:
    from streamplug.plugin.discovery import inventory, normalize

    distribution, colon, short = name.partition(":")
    if not colon:
        return inventory().providers(kind, name)
    entries = inventory().providers(kind, short)
    return [entry for entry in entries if entry.distribution == normalize(distribution)]


def _resolve(kind: str, name: str) -> type[Any]:
    builtin = KINDS[kind].builtin.get(name)
    if builtin is not None:
        return load_class(kind, name, builtin, "streamplug")
    entries = _find_entries(kind, name)
    if not entries:
        raise UnknownNameError(_unknown_name_text(kind, name))
    if len(entries) > 1:
        providers = " and ".join(entry.provider for entry in entries)
        choices = " or ".join(f"'{entry.distribution}:{name}'" for entry in entries)
        raise AmbiguousNameError(
            f"{kind} {name!r} is provided by {providers}; write {choices}, or name one of them in "
            "STREAMPLUG_DISABLE_PLUGINS"
        )
    return load_class(kind, name, entries[0].target, entries[0].provider)


def load_class(kind: str, name: str, target: str, provider: str) -> type[Any]:
    """Import a target and check that it implements its kind's interface."""
    module, _, attribute = target.partition(":")
    try:
        cls: type[Any] = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise BrokenPluginError(
            f"{kind} {name!r} comes from {provider}, which cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    try:
        _check_class(kind, name, cls, provider)
    except PluginError as error:
        raise BrokenPluginError(str(error)) from None
    return cls


def _check_class(kind: str, name: str, cls: object, provider: str) -> None:
    base = KINDS[kind].interface_class()
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise PluginError(
            f"{provider} gives {cls!r} as {kind} {name!r}; expected a subclass of {base.__name__}"
        )
    needed = [
        attribute
        for attribute, hint in vars(base).get("__annotations__", {}).items()
        if str(hint).startswith("ClassVar") and not hasattr(cls, attribute)
    ]
    if lacking := sorted([*getattr(cls, "__abstractmethods__", ()), *needed]):
        raise PluginError(f"{kind} {name!r} from {provider} lacks {', '.join(lacking)}")
    version: int = cls.api_version  # type: ignore[attr-defined]  # of the interface
    if version != base.api_version:
        raise PluginError(
            f"{kind} {name!r} from {provider} was written for version {version} of "
            f"{base.__name__}; this streamplug has version {base.api_version}"
        )


def _unknown_name_text(kind: str, name: str) -> str:
    from streamplug.plugin.discovery import inventory

    names = list_names("source") if kind == "format" else []
    sources = [source for source in names if source not in _UNNAMED_SOURCES]
    if name in sources:
        return f"format {name!r} is of tables, which cannot be used here: name a data set"
    available = [*list_names(kind), *sources]
    lines = [f"unknown {kind} {name!r}.{_hint(kind, name, set(available))}"]
    lines.append(f"Available: {', '.join(available)}")
    catalog = load_catalog()[kind]
    if ANY_SCHEME in catalog and ANY_SCHEME not in available and name not in catalog:
        lines.append(f"Other schemes may need: pip install {catalog[ANY_SCHEME]}")
    for entry in inventory().entries:
        if entry.status == "broken":
            lines.append(f"Note: {entry.provider} is installed but failed to load ({entry.reason})")
        elif entry.status == "disabled":
            lines.append(f"Note: {entry.provider} is disabled ({entry.reason})")
        elif entry.status == "rejected" and entry.name == name.rpartition(":")[2]:
            lines.append(f"Note: {entry.provider} provides it, but was rejected ({entry.reason})")
    return "\n".join(lines)


def _hint(kind: str, name: str, available: set[str]) -> str:
    from streamplug.plugin.discovery import inventory

    known = load_catalog()
    catalog = {**(known["source"] if kind == "format" else {}), **known[kind]}
    short = name.rpartition(":")[2]
    if others := [entry.provider for entry in inventory().providers(kind, short)]:
        return f" {short!r} is provided by {' and '.join(others)}."
    if distribution := catalog.get(name):
        if any(entry.distribution == distribution for entry in inventory().entries):
            return f" It is provided by {distribution}, which is installed but not in use."
        install = f"pip install {distribution}"
        return f" It is provided by {distribution}, which is not installed: {install}"
    # The default cutoff of 0.6 misses short names, such as 'zsd' for 'zstd'.
    close = difflib.get_close_matches(name.lower(), {*available, *catalog}, 3, 0.5)
    if not close:
        return ""
    transposed = (match for match in close if sorted(match) == sorted(name.lower()))
    best = next(transposed, close[0])
    install = "" if best in available else f" (pip install {catalog[best]})"
    return f" Did you mean {best!r}?{install}"


def make_uninitialized(pickled_class: bytes) -> Any:
    """Return an uninitialized instance of a pickled class."""
    import cloudpickle

    cls = cloudpickle.loads(pickled_class)
    return cls.__new__(cls)
