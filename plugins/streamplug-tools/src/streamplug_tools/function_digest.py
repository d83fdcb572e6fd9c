"""Digests of functions: of their code, and of the values that they close over and use.

Unlike pickles, they do not depend on the process, such as on the hashes of texts, nor on numbers of lines.
"""

from __future__ import annotations

import copyreg
import dis
import logging
import marshal
import os
import struct
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import _lru_cache_wrapper, cache, singledispatch
from pathlib import Path
from pickle import PickleBuffer
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    ModuleType,
)
from typing import Any

import numpy as np
import xxhash

_LOG = logging.getLogger("streamplug.write")
_SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes, type(...)))
_MARSHAL_VERSION = 2  # later ones depend on which equal values are the same object
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CLOSURE_LOADS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_MAX_VALUES = 1_000_000
_CLASS_STATE = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl"),
    }
)


def digest_function(function: object) -> str:
    """Return a digest that differs if the code of a function, or a value that it uses, differs.

    It covers closures, defaults, and the global variables, functions and classes that the code names, and of
    modules what the code names of them, or all if it uses them otherwise. What is of an installed package
    counts by its name, and a value that cannot be pickled, such as a file, by its type and its attribute
    `name`. With too many values, it is another one each time.
    """
    return _digest(function, {})


def _digest(root: Any, known: dict[int, tuple[int, Any]]) -> str:
    """Return the digest of a value.

    Args:
        root: The value.
        known: Position of each value above it by its id, and the value, so that no other one gets its id.
    """
    digest = xxhash.xxh3_128()
    pending: list[Any] = [root]
    while pending:
        if len(known) > _MAX_VALUES:  # also what makes new values of itself, without an end
            _LOG.warning(
                "%.200r uses more than %d values, which are too many to compare, so a killed call cannot be "
                "continued; give it an attribute `identity`, a text that is compared in their place",
                root,
                _MAX_VALUES,
            )
            digest.update(os.urandom(16))
            break
        value = pending.pop()
        data, parts = _take_apart_once(value, known)
        digest.update(struct.pack("<QQ", len(data), len(parts)))
        digest.update(data)
        pending.extend(reversed(parts))
    return digest.hexdigest()


def _take_apart_once(value: Any, known: dict[int, tuple[int, Any]]) -> tuple[bytes, Sequence[Any]]:
    """Return what identifies a value, without the values that it consists of, and these."""
    if _is_plain(value):
        return b"plain " + marshal.dumps(value, _MARSHAL_VERSION), ()
    if type(value) is tuple:
        return b"tuple", value
    if id(value) in known:
        return f"known {known[id(value)][0]}".encode(), ()
    known[id(value)] = len(known), value
    if type(value) in (set, frozenset):
        # Without the others, whose order differs.
        items = (_digest(item, {} if _is_plain(item) else known.copy()) for item in value)
        return b"set", (tuple(sorted(items)),)
    if name := _library_name(value):
        return f"name {name}".encode(), ()
    tag, parts = _take_apart(value)
    return tag.encode(), parts


def _is_plain(value: Any) -> bool:
    """Return whether a value is a scalar, or a tuple of scalars, for which `marshal` is much faster."""
    kind = type(value)
    return kind in _SCALARS or (kind is tuple and _SCALARS.issuperset(map(type, value)))


@singledispatch
def _take_apart(value: Any) -> tuple[str, Sequence[Any]]:
    """Return the kind of a value, and the values that it consists of."""
    return _take_apart_object(value)


def _take_apart_object(value: Any) -> tuple[str, Sequence[Any]]:
    reduced: Any = "unpicklable"
    try:
        if _is_tensor(value):
            return "tensor", (str(value.dtype), tuple(value.shape), _tensor_bytes(value))
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if not isinstance(reduced, str):
            make, arguments, *rest = reduced
            state, items, pairs = [*rest, None, None, None][:3]
            return "object", (
                type(value),
                make,
                arguments,
                state,
                (*(items or ()),),
                (*(pairs or ()),),
            )
    except Exception:  # noqa: BLE001 - any method of any class
        name = getattr(value, "name", None)
        reduced = ("unpicklable", name if isinstance(name, str) else None)
    return "object", (type(value), reduced)


@_take_apart.register(list)
@_take_apart.register(dict)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    if type(value) is list:
        return "list", (tuple(value),)
    if type(value) is dict:
        return "dict", (tuple(value), tuple(value.values()))
    return _take_apart_object(value)  # of a subclass


@_take_apart.register(set)
@_take_apart.register(frozenset)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    # Of a subclass: its pickle has the items in an order that differs.
    return "set object", (type(value), frozenset(value), getattr(value, "__dict__", None))


@_take_apart.register(type({}.keys()))
@_take_apart.register(type({}.values()))
@_take_apart.register(type({}.items()))
def _(value: Any) -> tuple[str, Sequence[Any]]:
    return "view", (type(value), tuple(value))


@_take_apart.register(MappingProxyType)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    return "view", (dict(value),)


@_take_apart.register
def _(value: memoryview) -> tuple[str, Sequence[Any]]:
    return "memory", (value.format, value.shape, value.tobytes())


@_take_apart.register
def _(value: PickleBuffer) -> tuple[str, Sequence[Any]]:
    return "buffer", (xxhash.xxh3_128_digest(value.raw()),)  # of any size, without a copy


@_take_apart.register
def _(value: np.memmap) -> tuple[str, Sequence[Any]]:
    return "array", (np.asarray(value),)  # whose pickle has no copy of the file


@_take_apart.register
def _(value: FunctionType) -> tuple[str, Sequence[Any]]:
    closure = dict(zip(value.__code__.co_freevars, map(_cell_contents, value.__closure__ or ())))
    variables = sorted(_used_variables(value.__code__, value.__globals__, closure).items())
    own = (value.__code__, value.__defaults__, value.__kwdefaults__, value.__dict__)
    return "function", (*own, *variables)


@_take_apart.register
def _(value: CodeType) -> tuple[str, Sequence[Any]]:
    names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
    counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    table = getattr(value, "co_exceptiontable", b"")  # since Python 3.11
    return "code", (value.co_code, table, value.co_consts, *names, *counts)


@_take_apart.register
def _(value: type) -> tuple[str, Sequence[Any]]:
    state = [pair for pair in sorted(vars(value).items()) if pair[0] not in _CLASS_STATE]
    return "class", (type(value), value.__name__, value.__bases__, *state)


@_take_apart.register
def _(value: ModuleType) -> tuple[str, Sequence[Any]]:
    if _is_library(value.__name__):
        return "module", (value.__name__,)
    return "module", [pair for pair in sorted(vars(value).items()) if not pair[0].startswith("__")]


@_take_apart.register(staticmethod)
@_take_apart.register(classmethod)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    return type(value).__name__, (value.__func__,)


@_take_apart.register
def _(value: property) -> tuple[str, Sequence[Any]]:
    return "property", (value.fget, value.fset, value.fdel)


@_take_apart.register(_lru_cache_wrapper)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    return "cached", (value.__wrapped__,)


def _is_tensor(value: Any) -> bool:
    """Return whether a value is a dense tensor of torch, whose pickle has its address."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided


def _tensor_bytes(tensor: Any) -> Any:
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(sys.modules["torch"].uint8).numpy()


def _cell_contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _used_variables(
    code: CodeType, variables: Mapping[str, Any], closure: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables that code uses, and what it uses of modules, by their names with dots."""
    used = {}
    for is_global, path in _loaded_paths(code):
        scope: Mapping[str, Any] | None = variables if is_global else closure
        followed, value = "", None
        for name in path:
            if scope is None or name not in scope:
                break
            followed, value = f"{followed}.{name}", scope[name]
            scope = vars(value) if _is_own_module(value) else None
        if followed:
            used[followed] = value
    return used


def _loaded_paths(code: CodeType) -> list[tuple[bool, list[str]]]:
    """Return the variables that code loads, with the attributes loaded of each, and whether it is global."""
    paths: list[tuple[bool, list[str]]] = []
    path: list[str] = []
    for instruction in dis.get_instructions(code):
        kind = instruction.opname
        if kind in _GLOBAL_LOADS or kind in _CLOSURE_LOADS:
            path = [instruction.argval]
            paths.append((kind in _GLOBAL_LOADS, path))
        elif kind in _ATTRIBUTE_LOADS:
            path.append(instruction.argval)
        elif kind != "EXTENDED_ARG":
            path = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            paths += _loaded_paths(constant)
    return paths


def _is_own_module(value: Any) -> bool:
    """Return whether a value is a module of the user's own code."""
    return isinstance(value, ModuleType) and not _is_library(value.__name__)


def _library_name(value: Any) -> str | None:
    """Return the name of a function, a class or a unique object of an installed package; None for others."""
    if isinstance(value, (BuiltinFunctionType, FunctionType, type)):
        homes: set[object] = {value.__module__}
        if isinstance(value, FunctionType):
            homes.add(value.__globals__.get("__name__"))  # `functools.wraps` changes the other
        is_named = "<locals>" not in value.__qualname__ and all(map(_is_library, homes))
        return f"{value.__module__}.{value.__qualname__}" if is_named else None
    home = type(value).__module__
    name = _names_in(home).get(id(value)) if _is_library(home) else None
    return f"{home}.{name}" if name and getattr(sys.modules[home], name, None) is value else None


@cache
def _names_in(module: str) -> dict[int, str]:
    """Return the names of the variables of a module by the ids of their values."""
    return {id(value): name for name, value in vars(sys.modules.get(module, object)).items()}


@cache
def _is_library(module: object) -> bool:
    """Return whether a module is of Python or of an installed package, and not the user's own code."""
    if not isinstance(module, str) or module in ("__main__", "__mp_main__"):
        return False  # some types written in C have a property in place of a name
    if module.partition(".")[0].partition("_")[0] == "streamplug":  # also where it is not installed
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # built in, or of a package that is
        package = module.rpartition(".")[0]
        return _is_library(package) if package else module in sys.stdlib_module_names
    path = Path(file).resolve()
    is_installed = not _PACKAGE_FOLDERS.isdisjoint(path.parts)
    return is_installed or any(path.is_relative_to(folder) for folder in _python_folders())


@cache
def _python_folders() -> list[Path]:
    return [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
