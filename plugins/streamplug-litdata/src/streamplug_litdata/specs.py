"""What an entry of the index says of columns: which leaves they are of, and of what kind those are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.interfaces import Encoding
from streamplug_litdata.nested import Branch, Json, Tree
from streamplug_litdata.values import NUMPY, TORCH, Array, Bool, Float, Tensor, Vector, dtype_of

Stored: TypeAlias = "str | dict[str, Any] | None"
"""A leaf, by the name of its kind; ``{"dict": {…}}``, ``{"list": […]}``, ``{"tuple": […]}``; or nothing."""

MakeEncoding = Callable[[str, str], Encoding]

PLAIN = {"str": "str", "text": "str", "bytes": "bytes", "int": "int", "pil": "pil"}
"""Those of the kinds that are as an encoding of the core, or of another plugin, has them."""

FILES = frozenset(["file", "tif", "tiff", "tifffile", "pdf", "video", "audio", "nifti", "mesh"])
IMAGES = frozenset(("image", "jpeg"))
_OF_ROWS = {"str": "str", "int": "int", "float": "float", "bool": "bool", "bytes": "bytes"}


@dataclass(frozen=True)
class Spec:
    """What is known of a column.

    Attributes:
        stored: The leaves that it is of, in chunks whose items are leaves.
        row: What its values are, in chunks of rows in Arrow; None if the set has none of those.
    """

    stored: Stored
    row: str | None = None

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Return what a text says that `str` made.

        Raises:
            InvalidIndexError: If nothing.
        """
        if not text.startswith("{"):
            return cls(text)
        try:
            said = json.loads(text)
            spec = cls(said["stored"], said["row"])
        except (ValueError, KeyError, RecursionError):
            raise InvalidIndexError(f"{text!r:.60} says nothing of a column") from None
        list(leaves(spec.stored))  # refuses what is no tree
        if not isinstance(spec.row, (str, type(None))):
            raise InvalidIndexError(f"{text!r:.60} says nothing of a column")
        return spec

    def __str__(self) -> str:
        if isinstance(self.stored, str) and self.row is None:
            return self.stored
        return json.dumps({"stored": self.stored, "row": self.row})

    @property
    def kind(self) -> str | None:
        """The kind of leaf that it is read as; None for several leaves."""
        if self.row is not None and self.stored in (None, "pickle"):
            return _OF_ROWS.get(self.row, "json")
        return self.stored if isinstance(self.stored, str) else None

    def encoding(self, name: str, options: Options, make: MakeEncoding) -> Encoding:
        """Return the encoding of the column.

        Raises:
            ConfigError: If it cannot be read.
            InvalidIndexError: If there is no such.
        """
        if self.kind is not None:
            return _leaf(name, self.kind, options, make)
        if self.stored is None:
            raise InvalidIndexError(f"column {name!r} has no leaves")
        return Tree(_branch(name, self.stored, options, make))


@dataclass(frozen=True)
class Options:
    """How values are given.

    Attributes:
        pil: Images as those of Pillow rather than as the bytes of their files.
        raw: What LitData had from a serializer of the user's own, as bytes.
    """

    pil: bool = False
    raw: bool = False


def leaves(stored: Stored) -> Iterator[str]:
    """Yield the kinds of the leaves that a column is of, in order.

    Raises:
        InvalidIndexError: If this is no tree.
    """
    if isinstance(stored, str):
        yield stored
    elif stored is not None:
        for _, child in _children(stored):
            yield from leaves(child)


def _children(stored: Any) -> list[tuple[str, Any]]:
    kind, inside = next(iter(stored.items()), ("", None)) if isinstance(stored, dict) else ("", 0)
    if kind == "dict" and isinstance(inside, dict):
        return list(inside.items())
    if kind in ("list", "tuple") and isinstance(inside, list):
        return [(str(number), each) for number, each in enumerate(inside)]
    raise InvalidIndexError(f"{stored!r:.60} is no tree of leaves")


def _branch(name: str, stored: Any, options: Options, make: MakeEncoding) -> Branch:
    if isinstance(stored, str):
        return _leaf(name, stored, options, make)
    made = {key: _branch(f"{name}.{key}", child, options, make) for key, child in _children(stored)}
    if "dict" in stored:
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
    "json": Json,
}
