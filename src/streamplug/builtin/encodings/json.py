"""Encoding of JSON values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces.encoding import Encoding
from streamplug.plugin_kit.codec_errors import wrong_type_error


class Json(Encoding):
    """``json``: JSON text in ASCII.

    Arrays and tuples become lists, NumPy scalars numbers, and keys of dicts strings. NaN and the
    infinities are stored under the names that Python's `json` gives them.
    """

    def encode(self, value: Any) -> bytes:
        try:
            return json.dumps(value, default=_plain).encode()
        except TypeError as error:
            raise wrong_type_error("json", f"what JSON can express ({error})", value) from error
        except (ValueError, RecursionError) as error:
            raise EncodeError(f"json: {error}") from error

    def decode(self, data: memoryview) -> Any:
        try:
            return json.loads(str(data, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"not JSON: {error}") from error


def _plain(value: object) -> object:
    """Convert NumPy objects to types that `json` supports."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not")
