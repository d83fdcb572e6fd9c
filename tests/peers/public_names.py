"""What a package has by public names, and where what stands for it here is not equal."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import numpy as np
from streamplug_mosaic.names import MODULES

from streamplug.config.signatures import parameters

EMPTY = inspect.Parameter.empty


def modules(package) -> Iterator[tuple[str, object]]:
    """Yield the modules of a package by name; None for those that cannot be imported here."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if any(part.startswith("_") for part in found.name.split(".")):
            continue
        try:
            yield found.name, importlib.import_module(found.name)
        except ImportError:
            yield found.name, None


def definitions(name, module) -> Iterator[tuple[str, object]]:
    """Yield the public classes and functions of a module by name, also those that it gives on."""
    for attribute, value in vars(module).items():
        if attribute.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if value.__module__ == name or attribute in getattr(module, "__all__", ()):
            yield attribute, value


def _arguments(function) -> dict[str, object]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return {
        p.name: p.default for p in found if p.kind not in kinds and p.name not in ("self", "cls")
    }


def _differing(what, theirs, ours) -> Iterator[str]:
    """Yield the parameters of theirs that ours has not, or has with another default."""
    for name, default in theirs.items():
        # What must be given there may be left out here.
        if name not in ours or (default is not EMPTY and not _equal(default, ours[name])):
            yield f"{what}({name}=)"


def _equal(theirs, ours) -> bool:
    return theirs is ours or bool(theirs == ours)


def different_definitions(package, names) -> set[str]:
    """Return what of a package is not there, or has other parameters or defaults.

    Args:
        package: The package.
        names: Has what stands for it.
    """
    found = set()
    for name, module in modules(package):
        if name not in MODULES:
            found.add(name)
        if (
            module is None or name not in MODULES
        ):  # of those that need Spark there is no more to tell
            continue
        for attribute, theirs in definitions(name, module):
            if attribute not in MODULES[name]:
                found.add(f"{name}.{attribute}")
                continue
            ours = getattr(names, attribute)
            if not inspect.isclass(theirs):
                found |= set(_differing(attribute, _arguments(theirs), _arguments(ours)))
                continue
            taken = {each: parameter.default for each, parameter in parameters(ours).items()}
            found |= set(_differing(attribute, _arguments(theirs), taken))
            found |= set(_different_members(attribute, theirs, ours))
    return found


def _different_members(name, theirs, ours) -> Iterator[str]:
    seen = set()
    for cls in theirs.__mro__:
        members = vars(cls) if cls.__module__.startswith("streaming") else {}
        for member, value in members.items():
            if member.startswith("_") or member in seen:
                continue
            seen.add(member)
            # What all writers have in common is told once.
            owner = "MDSWriter" if cls.__name__.endswith("Writer") else cls.__name__
            shown = f"{owner}.{member}"
            if not hasattr(ours, member):
                # Others than functions may be attributes of what is made, which is looked at, too.
                if inspect.isfunction(value) or isinstance(value, (property, classmethod)):
                    yield shown
            elif inspect.isfunction(value):
                yield from _differing(shown, _arguments(value), _arguments(getattr(ours, member)))


PLAIN = (int, float, str, bool, type(None), list, tuple, dict, np.ndarray, np.generic)


def different_attributes(name, theirs, ours, places) -> set[str]:
    """Return the public attributes of an object that its counterpart has not, or with another value.

    Args:
        name: What to call it.
        theirs: The object.
        ours: Its counterpart.
        places: Directories of both, which differ in nothing else.
    """
    known = {
        member
        for cls in type(theirs).__mro__
        if cls.__module__.startswith("streaming")
        for member, value in vars(cls).items()
        if not callable(value) and not isinstance(value, (classmethod, staticmethod))
    }
    found = set()
    for attribute in {*vars(theirs), *known}:
        if attribute.startswith("_"):
            continue
        value = getattr(theirs, attribute)
        there = hasattr(ours, attribute)
        if there and isinstance(value, PLAIN):
            there = _plain(value, places) == _plain(getattr(ours, attribute), places)
        if not there:
            found.add(f"{name}.{attribute}")
    return found


def _plain(value, places):
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return round(value, 12)
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, "PLACE")
        return value
    if isinstance(value, dict):
        return {key: _plain(each, places) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, places) for each in value]
    return value if isinstance(value, PLAIN) else "object"
