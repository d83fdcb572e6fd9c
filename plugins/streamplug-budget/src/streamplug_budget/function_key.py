"""Identity of a function across processes and runs, for cached results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dis import get_instructions
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from pickle import PicklingError
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, TypeVar

import cloudpickle
from xxhash import xxh3_128

from streamplug.errors import ConfigError

_CACHED_FUNCTION = type(lru_cache(len))
_PLAIN = (str, bytes, int, float, bool)
_DEFINITIONS = (ModuleType, FunctionType, BuiltinFunctionType, type)
_LOADS_GLOBAL, _LOADS_ATTRIBUTE = ("LOAD_GLOBAL", "LOAD_NAME"), ("LOAD_ATTR", "LOAD_METHOD")
"""Instructions that read a global variable, and an attribute of what was read before."""
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)  # of slots and of the dictionary


def function_key(function: Callable[..., Any]) -> str:
    """Return text that changes with a function, its code, the file that defines it, and what it has captured.

    It captures the values of its closure and its defaults, the function and the arguments of a partial, the
    function and the object of a bound method, and the state of a callable object; and values of global
    variables that it names, or that functions of its module do which it names, if they can be pickled. The
    text changes with the files of captured functions and classes, too, and with what these functions capture,
    but not with other files whose functions are called by a global name.

    Raises:
        ConfigError: If a captured value cannot be pickled.
    """
    try:
        return f"function {_FunctionKeys().key(function)}"
    except (PicklingError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{function!r:.100} captures a value that cannot be pickled, so its results cannot be cached: "
            f"{error}; let the function create such values when it is called"
        ) from error


class _FunctionKeys:
    """Keys of a function and of what it has captured."""

    def __init__(self) -> None:
        self._functions: dict[Any, str | None] = {}
        self._classes: dict[type, str] = {}
        self._sets: set[int] = set()  # in progress

    def key(self, function: Any) -> str:
        key = self.function_key(function) if type(function) is FunctionType else None
        return key or xxh3_128(self.pickle(function)).hexdigest()

    def function_key(self, function: Any) -> str | None:
        """Return the key of a Python function; None if there is no file that defines it."""
        if function not in self._functions:
            self._functions[function] = function.__qualname__  # if it has captured itself
            self._functions[function] = self._make_function_key(function)
        return self._functions[function]

    def _make_function_key(self, function: Any) -> str | None:
        source = _read_source(function)
        if source is None:
            return None
        # The pickle of a function that can be imported is its name, and that of others differs between
        # processes by the order of sets of constants.
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
        if "__wrapped__" in function.__dict__:
            captured.append(function.__wrapped__)
        digest = xxh3_128(source)
        digest.update(self.pickle((function.__defaults__, function.__kwdefaults__, captured)))
        for name, value in sorted(_global_values(function).items()):
            with suppress(Exception):  # any, by a value that cannot be pickled
                digest.update(name.encode() + self.pickle(value))
        # Functions of one line, such as two lambdas, have the same name and line.
        place = function.__qualname__, function.__code__.co_firstlineno
        digest.update(repr((place, _code_content(function.__code__))).encode())
        return digest.hexdigest()

    def class_key(self, class_: type) -> str | None:
        """Return the key of a class of the script or of a function; None for one whose pickle is its name."""
        if class_.__module__ != "__main__" and "<locals>" not in class_.__qualname__:
            return None
        if class_ not in self._classes:
            self._classes[class_] = class_.__qualname__  # if its methods refer to it
            members = sorted(vars(class_).items())
            content = [
                (name, value)
                for name, value in members
                if name != "_abc_impl" and not isinstance(value, _DESCRIPTORS)
            ]
            # cloudpickle's own form has a random number, which differs between processes.
            digest = xxh3_128(self.pickle((class_.__bases__, content)))
            self._classes[class_] = f"{class_.__qualname__} {digest.hexdigest()}"
        return self._classes[class_]

    def set_key(self, values: Any) -> str:
        """Return the key of a set, which does not depend on the order of its items in this process."""
        if id(values) in self._sets:  # it is in one of its items
            return "set"
        self._sets.add(id(values))
        items = [repr(v).encode() if type(v) in _PLAIN else self.pickle(v) for v in values]
        self._sets.remove(id(values))
        return f"{type(values).__name__} {xxh3_128(repr(sorted(items)).encode()).hexdigest()}"

    def pickle(self, value: Any) -> bytes:
        """Return a pickle of a value, with the files that define the classes in it."""
        file = BytesIO()
        pickler = _KeyPickler(file, self)
        pickler.dump(value)
        return b"".join([file.getvalue(), *filter(None, map(_read_source, pickler.classes))])


class _KeyPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickler that writes the keys of functions.

    Attributes:
        classes: The classes of the values, and their bases, in order.
    """

    def __init__(self, file: BytesIO, keys: _FunctionKeys) -> None:
        super().__init__(file)
        self._keys = keys
        self.classes: dict[type, None] = {}

    def persistent_id(self, value: Any) -> str | None:
        """Return what is written instead of a value; None for the value."""
        kind = type(value)  # isinstance() would ask proxies for their __class__
        if kind is FunctionType:
            return self._keys.function_key(value)
        if issubclass(kind, type):
            self.classes.update(dict.fromkeys(value.__mro__))
            return self._keys.class_key(value)
        if kind is TypeVar:
            return str(value.__name__)
        if kind in (set, frozenset):
            return self._keys.set_key(value)
        if kind is _CACHED_FUNCTION:
            return self._keys.key(value.__wrapped__)
        return None


def _global_values(function: FunctionType) -> dict[str, Any]:
    """Return the global variables, and attributes of them, that a function and those of its module use."""
    values: dict[str, Any] = {}
    pending, seen = [function.__code__], set[CodeType]()
    while pending:
        code = pending.pop()
        if code in seen:
            continue
        seen.add(code)
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction, following in pairwise(get_instructions(code)):
            name = instruction.argval
            if instruction.opname not in _LOADS_GLOBAL or name not in function.__globals__:
                continue
            value = function.__globals__[name]
            if following.opname in _LOADS_ATTRIBUTE:
                attribute = value
                with suppress(Exception):  # any, of a property or of a module that is loaded on use
                    attribute = getattr(value, following.argval)
                # Of an object with the options of a program, only those that are used matter.
                if isinstance(value, ModuleType | type) or not callable(attribute):
                    name, value = f"{name}.{following.argval}", attribute
            if type(value) is FunctionType and value.__globals__ is function.__globals__:
                pending.append(value.__code__)
            elif not isinstance(value, _DEFINITIONS):
                values[name] = value
    return values


def _code_content(code: CodeType) -> tuple[Any, ...]:
    """Return what a function does, whose `repr` is the same in all processes."""
    parameters = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars
    return code.co_code, parameters, names, [*map(_constant_content, code.co_consts)]


def _constant_content(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code_content(value)
    if isinstance(value, tuple):
        return tuple(map(_constant_content, value))
    if isinstance(value, frozenset):
        return "frozenset", sorted(map(_constant_content, value), key=repr)
    return value


def _read_source(thing: Any) -> bytes | None:
    """Return the file that defines a function or a class; None without one."""
    try:
        return Path(inspect.getsourcefile(thing) or "").read_bytes()
    except (TypeError, OSError):
        return None
