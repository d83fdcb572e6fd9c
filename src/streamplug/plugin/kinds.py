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


def _builtin(package: str, **targets: str) -> dict[str, str]:
    """Return full targets in a package of `streamplug.builtin` by name."""
    return {name: f"streamplug.builtin.{package}.{target}" for name, target in targets.items()}


_SIZED_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SIZED_FLOATS = ("float16", "float32", "float64")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "storage",
            "streamplug.interfaces:Storage",
            _builtin("storages", file="local:LocalStorage"),
        ),
        Kind(
            "compression",
            "streamplug.interfaces:Compression",
            _builtin("compressions", none="none:NoCompression", gz="gzip:Gzip")
            | _builtin("compressions", bz2="bzip2:Bzip2", xz="xz:Xz"),
        ),
        Kind(
            "encoding",
            "streamplug.interfaces:Encoding",
            _builtin("encodings", bytes="plain:Bytes", str="plain:Str", int="scalar:Int")
            | {
                name: f"streamplug.builtin.encodings.scalar:{name.title().replace('Ui', 'UI')}"
                for name in (*_SIZED_INTEGERS, *_SIZED_FLOATS)
            }
            | _builtin("encodings", str_int="decimal:StrInt", str_float="decimal:StrFloat")
            | _builtin("encodings", str_decimal="decimal:StrDecimal")
            | _builtin("encodings", ndarray="array:NDArrayEncoding")
            | _builtin("encodings", json="json:Json", pkl="pickle:Pickle"),
        ),
        Kind("format", "streamplug.interfaces:Format", _builtin("formats", mds="mds:MDS")),
        Kind(
            "shuffle",
            "streamplug.interfaces:ShuffleAlgorithm",
            _builtin("shuffles", none="none:NoShuffle", window="window:WindowShuffle")
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
        Kind("callback", "streamplug.interfaces:Callback", _builtin("callbacks", log="log:Log")),
        Kind("engine", "streamplug.interfaces:Engine", {}),
    )
}
