"""Data sets of token sequences, read as rows of one length."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_tokens.options import TokenBlocks, TokenPacks
    from streamplug_tokens.torch_dataset import TokenDataset

__all__ = ["TokenBlocks", "TokenDataset", "TokenPacks"]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_tokens' has no attribute {name!r}")
        module = "options"
        if name == "TokenDataset":
            # The same class, but without the torch base class.
            module = "dataset" if find_spec("torch") is None else "torch_dataset"
        value = getattr(import_module(f"streamplug_tokens.{module}"), name)
        globals()[name] = value
        return value
