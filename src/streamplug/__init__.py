"""streamplug streams training data from cloud storage into a training loop.

Public names are imported when they are first used (PEP 562), so that importing the package costs
next to nothing and needs neither torch nor any plugin.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.adapters import StreamingDataLoader as StreamingDataLoader
    from streamplug.adapters import StreamingDataset as StreamingDataset
    from streamplug.errors import StreamplugError as StreamplugError
    from streamplug.interfaces import Callback as Callback
    from streamplug.interfaces import Compression as Compression
    from streamplug.interfaces import Encoding as Encoding
    from streamplug.interfaces import Engine as Engine
    from streamplug.interfaces import Format as Format
    from streamplug.interfaces import ShuffleAlgorithm as ShuffleAlgorithm
    from streamplug.interfaces import Storage as Storage
    from streamplug.plugin import register_callback as register_callback
    from streamplug.plugin import register_compression as register_compression
    from streamplug.plugin import register_encoding as register_encoding
    from streamplug.plugin import register_engine as register_engine
    from streamplug.plugin import register_format as register_format
    from streamplug.plugin import register_shuffle as register_shuffle
    from streamplug.plugin import register_storage as register_storage
    from streamplug.plugin.added_names import *  # noqa: F403 - written by .ci/register
    from streamplug.run import sample_rng as sample_rng
    from streamplug.stream import Stream as Stream
    from streamplug.types import World as World
    from streamplug.write import MDSWriter as MDSWriter
    from streamplug.write import Writer as Writer

__version__ = "0.1.0"

_NAMES = {
    "adapters.torch": "StreamingDataLoader StreamingDataset",
    "errors": "StreamplugError",
    "interfaces": "Callback Compression Encoding Engine Format ShuffleAlgorithm Storage",
    "plugin.registration": "register_callback register_compression register_encoding register_engine "
    "register_format register_shuffle register_storage",
    "run": "sample_rng",
    "stream": "Stream",
    "types": "World",
    "write": "MDSWriter Writer",
}
"""Public names of the core by the module that defines them."""

_HOME = dict(sorted((name, module) for module in _NAMES for name in _NAMES[module].split()))

__all__ = list(_HOME)


if not TYPE_CHECKING:  # else any name would be one of the package
    if find_spec("torch") is None:  # `import *` gives what is installed
        __all__ = [name for name in __all__ if name != "StreamingDataLoader"]

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            if name.startswith("_"):  # Python and tools ask for some that few modules have
                raise AttributeError(f"module 'streamplug' has no attribute {name!r}")
            value = import_module("streamplug.plugin.discovery").load_name(name)
        else:
            home = _HOME[name]
            if home == "adapters.torch" and find_spec("torch") is None:
                if name == "StreamingDataLoader":
                    raise ImportError(
                        "StreamingDataLoader is a loader of torch, which is not installed: pip install "
                        "torch; without it, iterate over StreamingDataset.batches()"
                    )
                home = "dataset"  # the same class, less being a torch dataset
            value = getattr(import_module(f"streamplug.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    from streamplug.plugin import load_catalog

    return sorted({*globals(), *__all__, *load_catalog()["name"]})
