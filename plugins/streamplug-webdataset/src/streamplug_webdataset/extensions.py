"""How a value is encoded that is named by nothing but its extension."""

from __future__ import annotations

from importlib.util import find_spec

from streamplug.plugin import is_known

_TEXT = ("txt", "text", "transcript")
_NUMBERS = ("cls", "cls2", "count", "class", "id", "index", "inx")
_ENCODINGS = {
    **dict.fromkeys(_TEXT, "str"),
    **dict.fromkeys(("htm", "html"), "str"),
    **dict.fromkeys(_NUMBERS, "str_int"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("pyd", "pickle", "pkl"), "pkl"),
    **dict.fromkeys(("mp", "msg", "msgpack"), "msgpack"),
    **dict.fromkeys(("ten", "tb"), "ten"),
    "cbor": "cbor",
    "npy": "npy",
    "npz": "npz",
    "pth": "pth",
}


_IMAGES = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png"}


def encoding_of(extension: str, *, images: bool = False) -> str:
    """Return the encoding of values with an extension; ``bytes`` for all that is not known.

    Args:
        extension: In lower case.
        images: Whether image files are images rather than bytes.

    >>> encoding_of("seg.txt"), encoding_of("json.gz"), encoding_of("jpg")
    ('str', 'gzipped:json', 'bytes')
    """
    rest, _, last = extension.rpartition(".")
    if last == "gz":
        return f"gzipped:{encoding_of(rest, images=images) if rest else 'bytes'}"
    if images and last in _IMAGES:
        return _IMAGES[last]
    spec = _ENCODINGS.get(last, "bytes")
    if (spec == "msgpack" and not is_known("encoding", spec)) or (
        spec == "cbor" and find_spec("cbor2") is None
    ):
        return "bytes"
    return spec
