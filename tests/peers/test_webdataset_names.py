"""Every public name, parameter and default of webdataset is there, or on the migration page."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

wds = pytest.importorskip("webdataset")
ours = pytest.importorskip("streamplug_webdataset")

PAGE = Path(__file__).parents[2] / "docs" / "moving" / "webdataset.md"
SAID = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`([^`\n]+)`", PAGE.read_text()))))
"""All names that stand in code on the page."""


def importable(name):
    try:
        importlib.import_module(f"webdataset.{name}")
    except ImportError:
        return False
    return True


NAMES = sorted(each.name for each in pkgutil.iter_modules(wds.__path__) if each.name[0] != "_")
MODULES = [name for name in NAMES if importable(name)]
SOURCES = {"data", "source", "src", "self"}
"""What their functions call the iterator, which ours are stages without."""

EMPTY = inspect.Parameter.empty
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public(module):
    """Yield the names that a module defines itself."""
    for name, value in vars(module).items():
        home = getattr(value, "__module__", module.__name__)
        if name[0] != "_" and not inspect.ismodule(value) and str(home).startswith("webdataset"):
            yield name, value


def members():
    """Yield module, name and value of all that is public."""
    yield from (("", name, value) for name, value in public(wds))
    for module in MODULES:
        found = importlib.import_module(f"webdataset.{module}")
        yield from (
            (module, name, value)
            for name, value in public(found)
            if getattr(value, "__module__", found.__name__) == found.__name__
        )


def methods():
    """Yield class, name and value of the methods of their classes that ours have, too."""
    for name, value in public(wds):
        if inspect.isclass(value) and hasattr(ours, name):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if method[0] != "_" and function.__module__.startswith("webdataset"):
                    yield name, method, function


def found_in_ours(module, name):
    """Return ours of this name: in the module of theirs, or at the top."""
    if module:
        try:
            return getattr(importlib.import_module(f"streamplug_webdataset.{module}"), name)
        except (ImportError, AttributeError):
            pass
    return getattr(ours, name, None)


def differences(theirs, mine):
    """Return the parameters of theirs that are not in ours, or have another default there."""
    try:
        wanted, have = inspect.signature(theirs).parameters, inspect.signature(mine).parameters
    except (TypeError, ValueError):
        return []
    found = []
    for name, parameter in wanted.items():
        if name in SOURCES or parameter.kind in VARIABLE:
            continue
        if name not in have:
            found += [] if any(p.kind in VARIABLE for p in have.values()) else [name]
        elif not same_default(parameter.default, have[name].default):
            found.append(name)
    return found


def same_default(one, other):
    if callable(one) and callable(other):
        return True  # a function of theirs, and ours in its place
    return one is other or (type(one) is type(other) and one == other)


def test_there_is_something_to_compare():
    assert len(MODULES) > 10
    assert len(list(members())) > 200
    assert len(list(methods())) > 50
    assert set(NAMES) - set(MODULES) <= SAID  # they need packages that are not there


@pytest.mark.parametrize("module", ["", *MODULES])
def test_names_are_there_or_on_the_page(module):
    missing = [
        name
        for home, name, _ in members()
        if home == module and name not in SAID and found_in_ours(module, name) is None
    ]
    assert not missing, f"neither in streamplug_webdataset nor on the page: {missing}"


def test_methods_are_there_or_on_the_page():
    missing = [
        f"{owner}.{name}"
        for owner, name, _ in methods()
        if not hasattr(getattr(ours, owner), name) and name not in SAID
    ]
    assert not missing


def test_parameters_and_defaults_are_equal_or_on_the_page():
    wrong = {}
    for module, name, value in members():
        mine = found_in_ours(module, name)
        if mine is not None and callable(value):
            wrong[f"{module}.{name}"] = differences(value, mine)
    for owner, name, value in methods():
        mine = getattr(getattr(ours, owner), name, None)
        if mine is not None:
            wrong[f"{owner}.{name}"] = differences(value, mine)
    left = {what: [p for p in found if p not in SAID] for what, found in wrong.items()}
    assert not {what: found for what, found in left.items() if found}


def test_the_page_names_nothing_that_is_there_as_missing():
    """What its table says is not there must not be there, or the page is stale."""
    table = PAGE.read_text().partition("| Missing |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([A-Za-z]\w*)`", row)]
    assert names
    assert [name for name in names if hasattr(ours, name)] == []
