"""Runs a program where torchvision is imported but not used.

Composer imports it everywhere, and its builds are each for one build of torch.
"""

from __future__ import annotations

import runpy
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class Absent(MetaPathFinder, Loader):
    """Finds empty modules, whose attributes are empty classes."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        ours = name.partition(".")[0] == "torchvision"
        return ModuleSpec(name, self, is_package=True) if ours else None

    def exec_module(self, module: ModuleType) -> None:
        def attribute(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

        module.__getattr__ = attribute  # type: ignore[method-assign]


if __name__ == "__main__":
    import torchmetrics  # noqa: F401 - it asks whether torchvision is there, and does without

    sys.meta_path.append(Absent())
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
