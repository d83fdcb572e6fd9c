"""Kinds of plugins, with their interfaces and built-in names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plugin.

    Attributes:
        name: Name of the kind.
        interface: Base class of its plugins, ``"package.module:Class"``.
        builtin: Targets by built-in name, which take precedence over plugins.
    """

    name: str
    interface: str
    builtin: Mapping[str, str]

    def interface_class(self) -> type[Any]:
        """Import and return the interface."""
        module, _, name = self.interface.partition(":")
        interface: type[Any] = getattr(import_module(module), name)
        return interface


def _builtin(**targets: str) -> dict[str, str]:
    """Return full targets in `streamplug.builtin` by name."""
    return {name: f"streamplug.builtin.{target}" for name, target in targets.items()}


_SIZED_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SIZED_FLOATS = ("float16", "float32", "float64")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "storage",
            "streamplug.interfaces:Storage",
            _builtin(file="local_storage:LocalStorage"),
        ),
        Kind(
            "compression",
            "streamplug.interfaces:Compression",
            _builtin(none="compressions.none:NoCompression", gz="compressions.gzip:Gzip")
            | _builtin(bz2="compressions.bzip2:Bzip2", xz="compressions.xz:Xz"),
        ),
        Kind(
            "encoding",
            "streamplug.interfaces:Encoding",
            _builtin(
                bytes="encodings.plain:Bytes", str="encodings.plain:Str", int="encodings.scalar:Int"
            )
            | {
                name: f"streamplug.builtin.encodings.scalar:{name.title().replace('Ui', 'UI')}"
                for name in (*_SIZED_INTEGERS, *_SIZED_FLOATS)
            }
            | _builtin(str_int="encodings.scalar:StrInt", str_float="encodings.scalar:StrFloat")
            | _builtin(str_decimal="encodings.scalar:StrDecimal")
            | _builtin(ndarray="encodings.array:NDArrayEncoding")
            | _builtin(json="encodings.json:Json", pkl="encodings.pickle:Pickle"),
        ),
        Kind("format", "streamplug.interfaces:Format", _builtin(mds="mds:MDS")),
        Kind(
            "shuffle",
            "streamplug.interfaces:ShuffleAlgorithm",
            _builtin(none="shuffles.none:NoShuffle", window="shuffles.window:WindowShuffle")
            | {"global": "streamplug.builtin.shuffles.bijection:GlobalShuffle"},
        ),
        Kind(
            "order",
            "streamplug.run.order:Order",
            {"random": "streamplug.run.order:RandomOrder"},
        ),
        Kind(
            "source",
            "streamplug.source:Source",
            {"index": "streamplug.source.index_source:IndexSource"},
        ),
        Kind(
            "access",
            "streamplug.source:Access",
            {"shard": "streamplug.source.access:ShardAccess"},
        ),
        Kind("callback", "streamplug.interfaces:Callback", _builtin(log="log:Log")),
        Kind("engine", "streamplug.interfaces:Engine", {}),
    )
}
