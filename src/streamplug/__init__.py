"""streamplug streams training data from cloud storage into a training loop.

Public names are imported when they are first used (PEP 562), so that importing the package costs
next to nothing and needs neither torch nor any plugin.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_tokens import TokenBlocks, TokenDataset, TokenPacks

    from streamplug.adapters.torch import StreamingDataLoader, StreamingDataset
    from streamplug.errors import StreamplugError
    from streamplug.interfaces import (
        Callback,
        Compression,
        Encoding,
        Engine,
        Format,
        ShuffleAlgorithm,
        Storage,
    )
    from streamplug.plugin.registration import (
        register_callback,
        register_compression,
        register_encoding,
        register_engine,
        register_format,
        register_shuffle,
        register_storage,
    )
    from streamplug.stream import Stream
    from streamplug.types import World
    from streamplug.write import MDSWriter, Writer, merge_index, write_from, write_parts

__version__ = "0.1.0"

_HOME = {
    "Callback": "interfaces",
    "Compression": "interfaces",
    "Encoding": "interfaces",
    "Engine": "interfaces",
    "Format": "interfaces",
    "MDSWriter": "write",
    "ShuffleAlgorithm": "interfaces",
    "Storage": "interfaces",
    "Stream": "stream",
    "StreamingDataLoader": "adapters.torch",
    "StreamingDataset": "adapters.torch",
    "StreamplugError": "errors",
    "TokenBlocks": "streamplug_tokens",
    "TokenDataset": "streamplug_tokens",
    "TokenPacks": "streamplug_tokens",
    "World": "types",
    "Writer": "write",
    "merge_index": "write",
    "register_callback": "plugin.registration",
    "register_compression": "plugin.registration",
    "register_encoding": "plugin.registration",
    "register_engine": "plugin.registration",
    "register_format": "plugin.registration",
    "register_shuffle": "plugin.registration",
    "register_storage": "plugin.registration",
    "write_from": "write",
    "write_parts": "write",
}

__all__ = [
    "Callback",
    "Compression",
    "Encoding",
    "Engine",
    "Format",
    "MDSWriter",
    "ShuffleAlgorithm",
    "Storage",
    "Stream",
    "StreamingDataLoader",
    "StreamingDataset",
    "StreamplugError",
    "TokenBlocks",
    "TokenDataset",
    "TokenPacks",
    "World",
    "Writer",
    "merge_index",
    "register_callback",
    "register_compression",
    "register_encoding",
    "register_engine",
    "register_format",
    "register_shuffle",
    "register_storage",
    "write_from",
    "write_parts",
]

if not TYPE_CHECKING:  # else any name would be one of the package
    # `import *` gives what is installed.
    if find_spec("torch") is None:
        __all__ = [name for name in __all__ if name != "StreamingDataLoader"]
    if find_spec("streamplug_tokens") is None:
        __all__ = [name for name in __all__ if _HOME[name] != "streamplug_tokens"]

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'streamplug' has no attribute {name!r}")
        home = _HOME[name]
        if home == "adapters.torch" and find_spec("torch") is None:
            if name == "StreamingDataLoader":
                raise ImportError(
                    "StreamingDataLoader is a loader of torch, which is not installed: pip install torch; "
                    "without it, iterate over StreamingDataset.batches()"
                )
            home = "dataset"  # the same class, less being a torch dataset
        if home == "streamplug_tokens" and find_spec(home) is None:
            raise ImportError(
                f"{name} is in streamplug-tokens, which is not installed: pip install streamplug-tokens"
            )
        module = home if home.startswith("streamplug_") else f"streamplug.{home}"
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
