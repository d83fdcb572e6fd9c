"""Encoding of JSON values."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error


class Json(Encoding):
    """``json``: JSON text in ASCII.

    Arrays and tuples become lists, NumPy scalars numbers, and keys of dicts strings, which must stay
    distinct. NaN and the infinities are stored under the names that Python's `json` gives them.
    """

    def encode(self, value: Any) -> bytes:
        try:
            text = _ENCODER.encode(value)
            # Searched for first, as a look at all keys takes about as long as the encoding.
            if _KEY_THAT_MAY_COLLIDE.search(text):
                _check_keys(value)
            return text.encode()
        except TypeError as error:
            raise wrong_type_error("json", f"what JSON can express ({error})", value) from error
        except (ValueError, RecursionError) as error:
            raise EncodeError(f"json: {error}") from error

    def decode(self, data: memoryview) -> Any:
        try:
            return json.loads(str(data, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"not JSON: {error}") from error


def _check_keys(value: object) -> None:
    """Raise ValueError if keys of a dict become the same text, of which a reader finds only one."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, np.ndarray):
            part = part.tolist() if part.dtype.hasobject else ()
        if isinstance(part, (list, tuple)):
            pending += part
        elif isinstance(part, dict):
            pending += part.values()
            if set(map(type, part)) != {str}:
                keys: dict[str, object] = {}
                for key in part:
                    text = str.__str__(key) if isinstance(key, str) else json.dumps(key)
                    if text in keys:
                        raise ValueError(
                            f"the keys {keys[text]!r} and {key!r} of a dict are the same text; "
                            "use keys that differ as text"
                        )
                    keys[text] = key


def _plain(value: object) -> object:
    """Convert NumPy objects to types that `json` supports."""
    if isinstance(value, (np.ndarray, np.generic)) and _has_times(value.dtype):
        raise TypeError(f"{value.dtype} is not")  # would become integers, if in nanoseconds
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not")


def _has_times(dtype: np.dtype[Any]) -> bool:
    fields = (field for field, *_ in (dtype.fields or {}).values())
    return dtype.base.kind in "mM" or any(map(_has_times, fields))


_ENCODER = json.JSONEncoder(default=_plain)
_KEY_THAT_MAY_COLLIDE = re.compile(r'"(?:-?[0-9][-+.0-9e]*|true|false|null|NaN|-?Infinity)": ')
