"""Where the names of mosaicml-streaming are defined here; each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Any

from streamplug.compat import HOMES, MODULES

_WELL_KNOWN = [
    *MODULES["streaming.multimodal"],
    *MODULES["streaming.text"],
    *MODULES["streaming.vision"],
]


@cache
def _well_known(name: str) -> type:
    from streamplug.compat.dataset import OldDefaults, StreamingDataset

    ours = _of_plugin(name, "streamplug_datasets")
    base = StreamingDataset if name == "StreamingInsideWebVid" else OldDefaults
    return type(name, (base, ours), {"__doc__": ours.__doc__, "__module__": __name__})


@cache
def _without_digests(ours: Any) -> Any:
    """Return `dataframe_to_mds` that writes digests only if they are asked for."""

    @wraps(ours)
    def dataframe_to_mds(
        dataframe: Any, merge_index: bool = True, mds_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        given = dict(mds_kwargs or {})
        given["hashes"] = given.get("hashes") or ()
        return ours(dataframe, merge_index, given, **kwargs)

    return dataframe_to_mds


def __getattr__(name: str) -> Any:
    if name in _WELL_KNOWN:
        return _well_known(name)
    if name == "dataframe_to_mds":
        return _without_digests(_of_plugin(name, "streamplug_spark"))
    home = next((home for home, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"streamplug.compat.{home}"), name)


def _of_plugin(name: str, module: str) -> Any:
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        distribution = module.replace("_", "-")
        raise ImportError(f"{name} comes with a plugin: pip install {distribution}") from None
    return found
