"""The values that mds.json describes, for the script that writes them and the test that reads them."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np


def value(described: Any) -> Any:
    """Return what stands for itself in JSON, or what an object with one tag describes."""
    if isinstance(described, list):
        return [value(item) for item in described]
    if not isinstance(described, dict):
        return described
    ((tag, content),) = described.items()
    return _KINDS[tag](content)


def _image(described: tuple[str, tuple[int, int], str]) -> Any:
    from PIL import Image

    mode, size, pixels = described
    return Image.frombytes(mode, tuple(size), bytes.fromhex(pixels))


def opened(file: bytes) -> Any:
    """Return the image in the bytes of a file."""
    from PIL import Image

    return Image.open(BytesIO(file))


_KINDS = {
    "json": lambda content: content,
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "scalar": lambda content: np.dtype(content[0]).type(content[1]),
    "array": lambda content: np.array(content[1], content[0]),
    "image": _image,
    "tuple": lambda content: tuple(value(item) for item in content),
}
