"""Keys of the functions whose results are cached."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial

import pytest
from streamplug_budget.function_key import function_key

from streamplug.errors import ConfigError

MEASURES = """
def measure(sample, by=1):
    return sample["length"] // by

class Measure:
    def __init__(self, by=1):
        self.by = by

    def length(self, sample):
        return measure(sample, self.by)

    def __call__(self, sample):
        return self.length(sample)
"""
WRAPPERS = """
import functools
from measures import Measure, measure

def wrap(function):
    def wrapper(sample):
        return function(sample)
    return wrapper

def with_default(function):
    return lambda sample, function=function: function(sample)

def recursive(function):
    def wrapper(sample):
        return function(sample) if wrapper else 0
    return wrapper

def hidden(function):
    def wrapper(sample):
        return 0
    wrapper.__wrapped__ = function
    return wrapper

class Caller:
    def __init__(self, function):
        self.function = function

    def __call__(self, sample):
        return self.function(sample)

class Derived(Measure):
    pass

def local(by):
    class Local(Measure):
        names = {"a", "b", "c", "d"}

        def __call__(self, sample):
            return super().__call__(sample) // by

    return Local()

def with_sets(function):
    def wrapper(sample):
        is_pair = lambda: sample in {("a", 1), ("b", 2), ("c", 3)}
        return is_pair() or sample in {"a", "b", "c", "d"} or function(sample)
    return wrapper

FUNCTIONS = {
    "partial": functools.partial(measure, by=2),
    "method": Measure().length,
    "class method of a base": Derived().length,
    "object": Measure(),
    "object of a derived class": Derived(),
    "object that has a function": Caller(wrap(measure)),
    "closure": wrap(measure),
    "closures": wrap(recursive(wrap(measure))),
    "closure with a partial": wrap(functools.partial(measure)),
    "closure and sets of constants": with_sets(measure),
    "default": with_default(measure),
    "wrapped": hidden(measure),
    "object of a local class": local(1),
    "object of a local class that captured another value": local(2),
    "closure with an object of a local class": wrap(local(1)),
    "closure with a set": wrap(functools.partial(measure, {"a", "b", "c", "d"})),
    "lru_cache": functools.lru_cache(measure),
    "closure with lru_cache": wrap(functools.lru_cache(wrap(measure))),
}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that writes the modules, and returns the keys of all functions."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def keys(measures):
        (tmp_path / "measures.py").write_text(measures)
        (tmp_path / "wrappers.py").write_text(WRAPPERS)
        for name in ("measures", "wrappers"):
            sys.modules.pop(name, None)
        functions = importlib.import_module("wrappers").FUNCTIONS
        return {name: function_key(function) for name, function in functions.items()}

    yield keys
    for name in ("measures", "wrappers"):
        sys.modules.pop(name, None)


def test_a_key_changes_with_the_files_of_captured_functions_and_classes(load):
    before, after = load(MEASURES), load(MEASURES.replace("// by", "// by + 1"))
    assert [name for name in before if before[name] == after[name]] == []
    assert load(MEASURES) == before
    assert len(set(before.values())) == len(before)


def test_a_key_is_the_same_in_all_processes(load, tmp_path):
    keys = load(MEASURES)
    program = (
        "from streamplug_budget.function_key import function_key; from wrappers import FUNCTIONS; "
        "print({name: function_key(function) for name, function in FUNCTIONS.items()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert done.stdout.strip() == str(keys)


def scale(length, by):
    return length // by


def test_a_key_changes_with_captured_values():
    def multiply(by):
        return lambda length: length * by

    functions = [partial(scale, by=1), partial(scale, by=2), multiply(1), multiply(2)]
    assert len({function_key(function) for function in functions}) == 4
    assert function_key(partial(scale, by=2)) == function_key(functions[1])
    assert function_key(multiply(2)) == function_key(functions[3])


def test_functions_of_one_line_have_keys_of_their_own():
    functions = [
        lambda v: 1 * len(v), lambda v: 2 * len(v), lambda v: 2 * sum(v), lambda *v: 2 * len(v),
        lambda v: max(v, key=lambda n: n % 2), lambda v: max(v, key=lambda n: n % 3),
        lambda v: v in {1, 2}, lambda v: v in {1, 3}, lambda v: v in {1.0, 2},
    ]  # fmt: skip
    assert len(set(map(function_key, functions))) == len(functions)


def test_objects_of_classes_of_a_function_may_be_captured():
    @dataclass
    class Options:
        limit: int

    class Node:
        pass

    parent, child = Node(), Node()
    parent.children, child.parent = {child}, parent
    first, second = (function_key(partial(scale, by=Options(n))) for n in (1, 2))
    assert first != second
    assert function_key(partial(scale, by=parent)) == function_key(partial(scale, by=parent))


def test_a_captured_value_that_cannot_be_pickled_is_refused():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"lambda.* captures a value that cannot be pickled"):
        function_key(lambda length: length if lock else 0)


GLOBALS = """
import settings
LIMIT, TABLE, OTHER = 10, {"a": 1}, 5

class Options:
    def __init__(self):
        self.limit, self.folder = 10, "a"

    def cut(self, length):
        return min(length, self.limit)

options = Options()

def cut(length):
    return min(length, LIMIT)

def cut_again(length):
    return cut(length)

FUNCTIONS = {
    "number": lambda length: min(length, LIMIT),
    "nested": lambda length: [min(n, LIMIT) for n in (length,)][0],
    "function": lambda length: cut(length),
    "function of a function": lambda length: cut_again(length),
    "method of a built-in": lambda length: TABLE.get("a"),
    "attribute": lambda length: min(length, options.limit),
    "method": lambda length: options.cut(length),
    "attribute of a class": lambda length: min(length, Options.most),
    "attribute of a module": lambda length: settings.LIMIT,
}
"""
CHANGES = {
    "LIMIT": {"number", "nested", "function", "function of a function"},
    "TABLE": {"method of a built-in"},
    "limit": {"attribute", "method"},
    "folder": {"method"},
    "most": {"attribute of a class"},
    "module": {"attribute of a module"},
    "OTHER": set(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_key_changes_with_global_variables_that_are_used(tmp_path, monkeypatch, change):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "globals.py").write_text(GLOBALS)
    (tmp_path / "settings.py").write_text("LIMIT = 10")
    keys = []
    for number in (10, 20, 10):
        for name in ("globals", "settings"):
            sys.modules.pop(name, None)
        module = importlib.import_module("globals")
        module.Options.most = 10
        owners = {"limit": module.options, "folder": module.options, "most": module.Options}
        if change == "module":
            module.settings.LIMIT = number
        else:
            value = {"a": number} if change == "TABLE" else number
            setattr(owners.get(change, module), change, value)
        keys.append({name: function_key(call) for name, call in module.FUNCTIONS.items()})
    assert {name for name in keys[0] if keys[0][name] != keys[1][name]} == CHANGES[change]
    assert keys[0] == keys[2]


LOCK = threading.Lock()


def test_a_global_variable_that_cannot_be_pickled_is_left_out():
    assert function_key(lambda length: length if LOCK else 0)
