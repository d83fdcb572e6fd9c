"""Encodings of values as text, between separators or in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error


class FieldValue(Encoding):
    """A value stored as text.

    Attributes:
        name: Name in errors.
        expected: Description of accepted values, for errors.
        plain: The most frequent type of values.
    """

    name: ClassVar[str]
    expected: ClassVar[str]
    plain: ClassVar[type]

    @staticmethod
    def render(value: Any, /) -> str:
        """Return the text of a value of type `plain`."""
        raise NotImplementedError

    def text(self, value: Any) -> str:
        """Return the text of a value.

        Raises:
            EncodeError: If the value has the wrong type, or cannot be encoded.
        """
        raise NotImplementedError

    def texts(self, values: Sequence[Any] | NDArray[Any]) -> list[str]:
        """Return the texts of many values."""
        some: Any = values
        if isinstance(values, np.ndarray) and values.dtype.kind not in "mM":
            some = values.tolist()  # which would make integers of times in nanoseconds
        if set(map(type, some)) <= {self.plain}:
            return self.render_all(some)
        return list(map(self.text, some))

    def render_all(self, values: Sequence[Any]) -> list[str]:
        """Return the texts of many values of type `plain`."""
        return list(map(self.render, values))

    def encode(self, value: Any) -> bytes:
        try:
            return self.text(value).encode()
        except UnicodeEncodeError as error:
            raise EncodeError(
                f"{self.name} takes what UTF-8 can hold, got {value!r:.80}"
            ) from error

    def _refused(self, value: object) -> EncodeError:
        return wrong_type_error(self.name, self.expected, value)


def _as_is(text: str) -> str:
    return text


def printed(values: Sequence[float]) -> list[str] | None:
    """Return the `repr` of floats, faster than Python; None if the results could differ.

    Both use the shortest digits that round-trip, but differ in the use and the form of exponents.
    """
    sizes = np.abs(np.array(values, np.float64))
    if not len(sizes) or not ((sizes >= 1e-4) & (sizes < 1e16) | (sizes == 0)).all():
        return None
    return msgspec.json.encode(values).decode()[1:-1].split(",")


# -- between separators -------------------------------------------------------------------


class Field(FieldValue):
    """A value between separators."""

    @staticmethod
    def parse(text: str, /) -> Any:
        """Parse the text of a value.

        Raises:
            ValueError: If the text is invalid.
        """
        raise NotImplementedError

    def decode(self, data: memoryview) -> Any:
        try:
            return self.parse(str(data, "utf-8"))
        except ValueError as error:
            raise DecodeError(f"not {self.name} as text: {bytes(data[:80])!r}") from error


class StrField(Field):
    """A string, unquoted."""

    item = np.dtype("U")
    name, expected, plain = "str", "a str", str
    render = parse = staticmethod(_as_is)

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._refused(value)
        return value


class IntField(Field):
    """An integer of any size, in decimal digits."""

    item = np.dtype("int64")
    name, expected, plain = "int", "an int", int
    render, parse = staticmethod(int.__repr__), staticmethod(int)

    def text(self, value: Any) -> str:
        # bool is an int, but its text could not be parsed as one; NumPy takes durations for integers.
        if not isinstance(value, (int, np.integer)) or isinstance(value, (bool, np.timedelta64)):
            raise self._refused(value)
        return int.__repr__(int(value))


class FloatField(Field):
    """A float, in the shortest digits that round-trip."""

    item = np.dtype("float64")
    name, expected, plain = "float", "a float", float
    render, parse = staticmethod(float.__repr__), staticmethod(float)

    def text(self, value: Any) -> str:
        if not isinstance(value, float):
            raise self._refused(value)
        return float.__repr__(value)

    def render_all(self, values: Sequence[Any]) -> list[str]:
        return printed(values) or super().render_all(values)


FIELDS: Mapping[str, Encoding] = {"str": StrField(), "int": IntField(), "float": FloatField()}
"""The encodings of values between separators."""


# -- JSON -----------------------------------------------------------------------------------


class JsonValue(FieldValue):
    """A value in a JSON object.

    Attributes:
        type: Type for the parser.
    """

    type: ClassVar[Any]

    def taken(self, value: object) -> Any:
        """Convert a parsed value to the type of the column.

        Raises:
            DecodeError: If it has another type.
        """
        if isinstance(value, self.type):
            return value
        raise DecodeError(f"it is {self.expected}, got {type(value).__name__}: {value!r:.80}")

    def decode(self, data: memoryview) -> Any:
        try:
            value = json.loads(str(data, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"not JSON: {error}") from error
        return self.taken(value)


class JsonStr(JsonValue):
    """A string, escaped to ASCII."""

    item = np.dtype("U")
    name, expected, plain = "str", "a str", str
    type = str
    render = staticmethod(encode_basestring_ascii)

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._refused(value)
        return encode_basestring_ascii(value)


class JsonInt(JsonValue):
    """An integer of any size, or a boolean."""

    item = np.dtype("int64")
    name, expected, plain = "int", "an int", int
    type = int | bool
    render = staticmethod(int.__repr__)

    def text(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, (int, np.integer)) or isinstance(value, np.timedelta64):
            raise self._refused(value)
        return int.__repr__(int(value))


_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonFloat(JsonValue):
    """A float, in the shortest digits that round-trip; NaN and infinities by name."""

    item = np.dtype("float64")
    name, expected, plain = "float", "a float", float
    type = float

    def taken(self, value: object) -> Any:
        if type(value) is int:
            return float(value)
        return super().taken(value)

    @staticmethod
    def render(value: float, /) -> str:
        text = float.__repr__(value)
        return _NO_NUMBERS.get(text, text)

    def text(self, value: Any) -> str:
        if not isinstance(value, float):
            raise self._refused(value)
        return self.render(value)

    def render_all(self, values: Sequence[Any]) -> list[str]:
        return printed(values) or super().render_all(values)


JSON: Mapping[str, Encoding] = {"str": JsonStr(), "int": JsonInt(), "float": JsonFloat()}
"""The encodings of values in JSON objects."""
