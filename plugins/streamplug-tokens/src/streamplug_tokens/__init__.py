"""Data sets of token sequences, read as rows of one length."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_tokens.options import TokenBlocks as TokenBlocks
    from streamplug_tokens.options import TokenPacks as TokenPacks
    from streamplug_tokens.torch_dataset import TokenDataset as TokenDataset
else:
    _load, __all__ = lazy_names(
        __name__, {"options": "TokenBlocks TokenPacks", "torch_dataset": "TokenDataset"}
    )

    def __getattr__(name: str) -> Any:
        if name == "TokenDataset" and find_spec("torch") is None:
            # The same class, but without the torch base class.
            from streamplug_tokens.dataset import TokenDataset

            return TokenDataset
        return _load(name)
