"""Names of packages that are imported on first use (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return the ``__getattr__`` and the ``__all__`` of a package.

    The discovery of plugins imports packages, which should cost little. Call it where type checkers do not
    look: of a package with a ``__getattr__`` they accept any name.

    Args:
        package: ``__name__`` of the package.
        modules: The public names of the package, separated by spaces, by the module in it that defines them.
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return load, sorted(home)
