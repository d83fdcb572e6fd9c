"""Anything that pickles."""

from __future__ import annotations

import pickle
from typing import Any

from streamplug.errors import DecodeError, EncodeTypeError
from streamplug.interfaces.encoding import Encoding


class Pickle(Encoding):
    """``pkl``: a pickle; unsafe, as loading one can run any code that it names."""

    unsafe = True

    def encode(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception as error:  # classes decide how they pickle, and so what they raise
            kind = type(value).__name__
            raise EncodeTypeError(f"pkl takes what pickles, got {kind}: {error}") from error

    def decode(self, data: memoryview) -> Any:
        try:
            return pickle.loads(data)  # noqa: S301 - allowed by whoever chose this encoding
        except Exception as error:
            raise DecodeError(f"not a pickle: {type(error).__name__}: {error}") from error
