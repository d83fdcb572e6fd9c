"""Column specs of index entries: the leaves of a column and their kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.interfaces import Encoding
from streamplug_litdata.nested import Branch, JsonItem, make_tree
from streamplug_litdata.values import NUMPY, TORCH, Array, Bool, Float, Tensor, Vector, dtype_of

Stored: TypeAlias = "str | dict[str, Any] | None"
"""The kind of a leaf; ``{"dict": {…}}``, ``{"list": […]}``, ``{"tuple": […]}``; or None.

A dict whose keys are not all strings is ``{"items": [[key, …], …]}``.
"""

MakeEncoding = Callable[[str, str], Encoding]

PLAIN = {"str": "str", "text": "str", "bytes": "bytes", "int": "int", "pil": "pil"}
"""Kinds with an encoding in the core or in another plugin, by that encoding."""

FILES = frozenset(["file", "tif", "tiff", "tifffile", "pdf", "video", "audio", "nifti", "mesh"])
IMAGES = frozenset(("image", "jpeg"))
_OF_ROWS = {"str": "str", "int": "int", "float": "float", "bool": "bool", "bytes": "bytes"}


@dataclass(frozen=True)
class Spec:
    """Spec of a column.

    Attributes:
        stored: Its leaves in chunks of items.
        row: Its kind in chunks of Arrow rows; None if the data set has no such chunks.
    """

    stored: Stored
    row: str | None = None

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse the result of `str`.

        Raises:
            InvalidIndexError: If it is not a spec.
        """
        if not text.startswith("{"):
            return cls(text)
        try:
            said = json.loads(text)
            spec = cls(said["stored"], said["row"])
        except (ValueError, KeyError, RecursionError):
            raise InvalidIndexError(f"{text!r:.60} says nothing of a column") from None
        list(leaves(spec.stored))  # raises if the tree is invalid
        if not isinstance(spec.row, (str, type(None))):
            raise InvalidIndexError(f"{text!r:.60} says nothing of a column")
        return spec

    def __str__(self) -> str:
        if isinstance(self.stored, str) and self.row is None:
            return self.stored
        return json.dumps({"stored": self.stored, "row": self.row})

    @property
    def kind(self) -> str | None:
        """Kind of the leaf that the column is read as; None for several leaves."""
        if self.row is not None and self.stored in (None, "pickle"):
            return _OF_ROWS.get(self.row, "json")
        return self.stored if isinstance(self.stored, str) else None

    def encoding(self, name: str, options: Options, make: MakeEncoding) -> Encoding:
        """Return the encoding of the column.

        Raises:
            ConfigError: If the column cannot be read.
            InvalidIndexError: If there is no such encoding.
        """
        if self.kind is not None:
            return _leaf(name, self.kind, options, make)
        if self.stored is None:
            raise InvalidIndexError(f"column {name!r} has no leaves")
        return make_tree(_branch(name, self.stored, options, make))


@dataclass(frozen=True)
class Options:
    """Options for decoding.

    Attributes:
        pil: Decode images to Pillow images rather than to the bytes of their files.
        raw: Return values of custom serializers as bytes.
    """

    pil: bool = False
    raw: bool = False


def leaves(stored: Stored) -> Iterator[str]:
    """Yield the kinds of the leaves of a column, in order.

    Raises:
        InvalidIndexError: If the tree is invalid.
    """
    if isinstance(stored, str):
        yield stored
    elif stored is not None:
        for _, child in _children(stored):
            yield from leaves(child)


def is_key(key: Any) -> bool:
    """Return whether JSON keeps a key of a dict as it is."""
    return key is None or isinstance(key, (str, int, float))


def _children(stored: Any) -> list[tuple[Any, Any]]:
    kind, inside = next(iter(stored.items()), ("", None)) if isinstance(stored, dict) else ("", 0)
    if kind == "dict" and isinstance(inside, dict):
        return list(inside.items())
    if kind == "items" and isinstance(inside, list) and all(map(_is_item, inside)):
        items = dict(inside)
        if len(items) == len(inside):
            return list(items.items())
    if kind in ("list", "tuple") and isinstance(inside, list):
        return [(str(number), child) for number, child in enumerate(inside)]
    raise InvalidIndexError(f"{stored!r:.60} is no tree of leaves")


def _is_item(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and len(item) == 2 and is_key(item[0])


def _branch(name: str, stored: Any, options: Options, make: MakeEncoding) -> Branch:
    if isinstance(stored, str):
        return _leaf(name, stored, options, make)
    made = {key: _branch(f"{name}.{key}", child, options, make) for key, child in _children(stored)}
    if "dict" in stored or "items" in stored:
        return made
    return list(made.values()) if "list" in stored else tuple(made.values())


def _leaf(name: str, kind: str, options: Options, make: MakeEncoding) -> Encoding:
    base, _, argument = kind.partition(":")
    if base == "no_header_numpy":
        return Vector(dtype_of(NUMPY, argument))
    if base == "no_header_tensor":
        return Vector(dtype_of(TORCH, argument))
    if base in _OWN:
        return _OWN[base]()
    if base == "pickle":
        return make(name, "pkl")
    if base in PLAIN:
        return make(name, PLAIN[base])
    if options.pil and (base in IMAGES or base == "jpeg_array"):
        return make(name, "jpeg_array" if base == "jpeg_array" else "jpeg")
    if base in FILES or base in IMAGES or base == "jpeg_array" or options.raw:
        return make(name, "bytes")
    raise ConfigError(
        f"column {name!r} is of the serializer {kind!r}, which is not known here; to have its bytes as "
        "they are, pass format='litdata:raw', and decoders= to decode them"
    )


_OWN: Mapping[str, Callable[[], Encoding]] = {
    "float": Float,
    "bool": Bool,
    "numpy": Array,
    "tensor": Tensor,
    "json": JsonItem,
}
