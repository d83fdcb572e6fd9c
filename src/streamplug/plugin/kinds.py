"""The seven kinds of plugin: their hooks, their interfaces, and the built-in names of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of plugin.

    Attributes:
        name: What errors call it.
        hook: The hook that declares it.
        base: The class of `streamplug.interfaces` that its classes derive from.
        builtin: The built-in names and their targets; answered before any plugin is looked for.
    """

    name: str
    hook: str
    base: str
    builtin: Mapping[str, str]


def _table(module: str, **targets: str) -> dict[str, str]:
    """Map ``name="file:Class"`` entries to full targets below `streamplug.builtin`."""
    return {name: f"streamplug.builtin.{module}.{target}" for name, target in targets.items()}


_SIZED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "storage",
            "streamplug_storages",
            "Storage",
            _table("storages", file="any:AnyFsspec", memory="any:AnyFsspec")
            | _table("storages", http="http:Http", https="http:Http"),
        ),
        Kind(
            "compression",
            "streamplug_compressions",
            "Compression",
            _table("compressions", none="none:NoCompression", gz="gzip:Gzip")
            | _table("compressions", bz2="bzip2:Bzip2", xz="xz:Xz"),
        ),
        Kind(
            "encoding",
            "streamplug_encodings",
            "Encoding",
            _table("encodings", bytes="plain:Bytes", str="plain:Str", int="scalar:Int")
            | {
                name: f"streamplug.builtin.encodings.scalar:{name.title().replace('Ui', 'UI')}"
                for name in (*_SIZED, *_FLOATS)
            }
            | _table("encodings", str_int="decimal:StrInt", str_float="decimal:StrFloat")
            | _table("encodings", str_decimal="decimal:StrDecimal", ndarray="array:NDArrayEncoding")
            | _table("encodings", json="json:Json", pkl="pickle:Pickle"),
        ),
        Kind("format", "streamplug_formats", "Format", _table("formats", mds="mds:MDS")),
        Kind(
            "shuffle",
            "streamplug_shuffles",
            "ShuffleAlgorithm",
            {
                "none": "streamplug.builtin.shuffles.none:NoShuffle",
                "window": "streamplug.builtin.shuffles.window:WindowShuffle",
                "global": "streamplug.builtin.shuffles.bijection:GlobalShuffle",
            },
        ),
        Kind("callback", "streamplug_callbacks", "Callback", _table("callbacks", log="log:Log")),
        Kind("engine", "streamplug_engines", "Engine", _table("engines", local="local:Local")),
    )
}
