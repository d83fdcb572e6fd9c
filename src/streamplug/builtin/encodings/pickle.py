"""Encoding of pickled objects."""

from __future__ import annotations

import pickle
from typing import Any

from streamplug.errors import DecodeError, EncodeTypeError
from streamplug.interfaces import Encoding


class Pickle(Encoding):
    """``pkl``: a pickle; unsafe, because loading one can execute arbitrary code."""

    unsafe = True

    def encode(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception as error:  # classes can raise anything when pickled
            kind = type(value).__name__
            raise EncodeTypeError(f"pkl takes what pickles, got {kind}: {error}") from error

    def decode(self, data: memoryview) -> Any:
        try:
            return pickle.loads(data)  # noqa: S301 - the user allowed unsafe types
        except Exception as error:
            raise DecodeError(f"not a pickle: {type(error).__name__}: {error}") from error
