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
from collections.abc import Iterator, Mapping, Sequence
from functools import _lru_cache_wrapper, cache, singledispatch
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    ModuleType,
)
from typing import Any

import xxhash

_LOG = logging.getLogger("streamplug.write")
_SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes, type(...)))
_MARSHAL_VERSION = 2  # later ones depend on which equal values are the same object
_LIBRARY_FOLDERS = ("stdlib", "platstdlib", "purelib", "platlib")
_MAX_VALUES = 1_000_000
_CLASS_STATE = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl"),
    }
)


def digest_function(function: object) -> str:
    """Return a digest that differs if the code of a function, or a value that it uses, differs.

    It covers closures, defaults, and the global variables, functions and classes that the code names. What is
    of an installed package counts by its name, and a value that cannot be pickled by its type. With too many
    values, it is another one each time.
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
        digest.update(struct.pack("<QQ", len(data), len(parts)) + data)
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
    if _is_of_library(value):
        return f"name {value.__module__}.{value.__qualname__}".encode(), ()
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
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
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
        reduced = "unpicklable"
    return "object", (type(value), reduced)


@_take_apart.register(list)
@_take_apart.register(dict)
def _(value: Any) -> tuple[str, Sequence[Any]]:
    if type(value) is list:
        return "list", (tuple(value),)
    if type(value) is dict:
        return "dict", (tuple(value), tuple(value.values()))
    return _take_apart_object(value)  # of a subclass


@_take_apart.register
def _(value: FunctionType) -> tuple[str, Sequence[Any]]:
    cells = tuple(_cell_contents(cell) for cell in value.__closure__ or ())
    closure = dict(zip(value.__code__.co_freevars, cells))
    variables = sorted(_used_variables(value.__code__, value.__globals__, closure).items())
    own = (value.__code__, value.__defaults__, value.__kwdefaults__, value.__dict__)
    return "function", (*own, cells, *variables)


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
    return "module", (value.__name__,)


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
    """Return the global variables that code uses, and what it uses of modules that are variables."""
    used = {name: variables[name] for name in _global_names(code) if name in variables}
    attributes = set(_attribute_names(code))
    for name, module in [*used.items(), *closure.items()]:
        if isinstance(module, ModuleType) and not _is_library(module.__name__):
            for attribute in attributes & vars(module).keys():
                used[f"{name}.{attribute}"] = vars(module)[attribute]
    return used


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _attribute_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attribute_names(constant)


def _is_of_library(value: Any) -> bool:
    """Return whether a value is a function or a class of an installed package, which counts by its name."""
    if not isinstance(value, (BuiltinFunctionType, FunctionType, type)):
        return False
    return "<locals>" not in value.__qualname__ and _is_library(value.__module__)


@cache
def _is_library(module: str | None) -> bool:
    """Return whether a module is of Python or of an installed package, and not the user's own code."""
    if module is None or module in ("__main__", "__mp_main__"):
        return False
    if module.partition(".")[0].partition("_")[0] == "streamplug":  # also where it is not installed
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # built in
        return module in sys.modules
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> list[Path]:
    return [Path(sysconfig.get_path(name)).resolve() for name in _LIBRARY_FOLDERS]
