"""The obstore module, loaded again in forked processes.

obstore runs its requests on its own threads. A forked child inherits the module but not the threads: it would
wait for them forever, and change the parent's epoll instance. Therefore a child loads the compiled part of
obstore again, which starts new threads. The inherited module may have been loaded by the user's own code.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from streamplug.errors import StorageError

_COMPILED = "obstore._obstore"


class _Process:
    """The obstore module of a process."""

    def __init__(self, *, inherited: bool) -> None:
        self.client: ModuleType | None = None
        self.inherited = inherited
        self.lock = threading.Lock()


def _is_loaded() -> bool:
    return _COMPILED in sys.modules


# Where this module is imported later than obstore, a parent may have loaded that; only a copy is safe.
_processes = [_Process(inherited=_is_loaded() and hasattr(os, "memfd_create"))]
"""This process, preceded by its parents."""


def obstore_module() -> Any:
    """Return the obstore module, or in a forked child a copy of it.

    Raises:
        StorageError: If this is a forked child on a system that cannot load a copy.
    """
    process = _processes[-1]
    if process.client is None:
        with process.lock:
            if process.client is None:
                process.client = _load_again() if process.inherited else _load()
    return process.client


def _load() -> ModuleType:
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


def _load_again() -> ModuleType:
    inherited = {name: sys.modules[name] for name in sys.modules if _is_obstore(name)}
    try:
        for name in inherited:
            del sys.modules[name]
        sys.modules[_COMPILED] = _load_copy(str(inherited[_COMPILED].__file__))
        module = _load()
    finally:
        # Other code may refer to the inherited module and its classes: restore it.
        for name in [name for name in sys.modules if _is_obstore(name)]:
            del sys.modules[name]
        sys.modules.update(inherited)
    return module


def _is_obstore(name: str) -> bool:
    return name.partition(".")[0] == "obstore"


def _load_copy(path: str) -> ModuleType:
    if not hasattr(os, "memfd_create"):
        raise StorageError(
            "obstore cannot be used in a forked process on this system; start loader workers with "
            "multiprocessing_context='spawn'"
        )
    # The linker identifies a library by its file: a copy in memory is loaded separately.
    copy = os.memfd_create("obstore")
    with open(path, "rb") as source, open(copy, "wb") as target:  # noqa: PTH123 - a descriptor
        target.write(source.read())
        target.flush()
        place = f"/proc/self/fd/{copy}"
        loader = ExtensionFileLoader(_COMPILED, place)
        spec = spec_from_file_location(_COMPILED, place, loader=loader)
        if spec is None:
            raise StorageError(f"{path} cannot be loaded a second time")
        module = module_from_spec(spec)
        loader.exec_module(module)
    return module


def _after_fork() -> None:
    _processes.append(_Process(inherited=_is_loaded()))


os.register_at_fork(after_in_child=_after_fork)
