"""Conversion between Arrow types and their names in the index.

The names are those of Arrow without the field names of list items: ``list<int32>``,
``fixed_size_list<float>[3]``, ``struct<a: int64, b: string>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa

from streamplug.errors import ConfigError

_DEEPEST = 24
_WORD = re.compile(r"[\w.-]+")
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"<>,:]+')
_ITEM = re.compile(r"(?:item|element): ")
_SIMPLE = re.compile(r"[a-z_]+[0-9]*(?:\[[^]]*\]|\([^)]*\))?")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]+)\]")
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), ?([0-9]+)\)")
_FIXED_SIZE_BINARY = re.compile(r"fixed_size_binary\[([0-9]+)\]")
_COUNT = re.compile(r"\[([0-9]+)\]")


def plain(type_: pa.DataType, *, inside: bool = False) -> pa.DataType:  # noqa: C901, PLR0911 - one for each kind
    """Return the type that values of a type are read as, one that `spec_of` has a name for.

    Extension types become their storage types, dictionaries their value types, decimals of 32 and 64 bits
    those of 128, and nanoseconds within lists and structs integers, as Python has no value that always
    represents them.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain(type_.storage_type, inside=inside)
    of = pa.types
    if of.is_dictionary(type_):
        return plain(type_.value_type, inside=inside)
    if of.is_fixed_size_list(type_):
        return pa.list_(_item(type_), type_.list_size)
    if of.is_list(type_) or of.is_large_list(type_):
        return pa.list_(_item(type_))
    if of.is_struct(type_):
        return pa.struct([(field.name, plain(field.type, inside=True)) for field in type_])
    if of.is_map(type_):
        return pa.map_(plain(type_.key_type, inside=True), plain(type_.item_type, inside=True))
    if of.is_large_string(type_) or str(type_) == "string_view":
        return pa.string()
    if of.is_large_binary(type_) or str(type_) == "binary_view":
        return pa.binary()
    if of.is_decimal(type_) and type_.bit_width < 128:
        return pa.decimal128(type_.precision, type_.scale)
    fine = of.is_timestamp(type_) or of.is_duration(type_)
    if (fine and inside and type_.unit == "ns") or (of.is_time64(type_) and type_.unit == "ns"):
        return pa.int64()
    return type_


def _item(type_: pa.DataType) -> pa.Field:
    return pa.field("element", plain(type_.value_type, inside=True))


def spec_of(type_: pa.DataType) -> str:
    """Return the name of a type that `plain` returned.

    Raises:
        ConfigError: If there is none, as the type cannot be read.
    """
    of = pa.types
    if of.is_fixed_size_list(type_):
        return f"fixed_size_list<{spec_of(type_.value_type)}>[{type_.list_size}]"
    if of.is_list(type_):
        return f"list<{spec_of(type_.value_type)}>"
    if of.is_struct(type_):
        fields = (f"{_quoted(field.name)}: {spec_of(field.type)}" for field in type_)
        return f"struct<{', '.join(fields)}>"
    if of.is_map(type_):
        return f"map<{spec_of(type_.key_type)}, {spec_of(type_.item_type)}>"
    text = {"date32[day]": "date32", "date64[ms]": "date64"}.get(str(type_), str(type_))
    try:
        if type_of(text) == type_:
            return text
    except ConfigError:
        pass
    raise ConfigError(f"the type {text} cannot be read")


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


@lru_cache(1024)
def type_of(spec: str) -> pa.DataType:
    """Return the type with a name.

    Raises:
        ConfigError: If there is none.
    """
    parser = _Parser(spec)
    parsed = parser.type(0)
    if parser.at != len(spec):
        raise parser.error()
    return parsed


class _Parser:
    """Parser of type names."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def error(self) -> ConfigError:
        return ConfigError(f"{self.text!r:.200} is not a type of Arrow, from place {self.at} on")

    def type(self, depth: int) -> pa.DataType:
        if depth > _DEEPEST:
            raise ConfigError(f"{self.text!r:.80}: nested more than {_DEEPEST} times")
        rest = self.text[self.at :]
        for start, read in _NESTED.items():
            if rest.startswith(start):
                self.at += len(start)
                return read(self, depth + 1)
        match = _SIMPLE.match(rest)
        if match is None:
            raise self.error()
        type_ = _simple(match[0])
        if type_ is None:
            raise self.error()
        self.at += match.end()
        return type_

    def list(self, depth: int) -> pa.DataType:
        return pa.list_(self._field(depth))

    def fixed_list(self, depth: int) -> pa.DataType:
        field = self._field(depth)
        count = _COUNT.match(self.text, self.at)
        if count is None or int(count[1]) >= 1 << 31:
            raise self.error()
        self.at = count.end()
        return pa.list_(field, int(count[1]))

    def _field(self, depth: int) -> pa.Field:
        self._skip(_ITEM)
        item = self.type(depth)
        self._expect(">")
        return pa.field("element", item)

    def struct(self, depth: int) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        while not self.text.startswith(">", self.at):
            if fields:
                self._expect(", ")
            match = _NAME.match(self.text, self.at)
            if match is None:
                raise self.error()
            self.at = match.end()
            try:
                name = json.loads(match[0]) if match[0].startswith('"') else match[0]
            except ValueError:
                raise self.error() from None
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise ConfigError(f"{self.text!r:.200}: the field {name!r} is no text in UTF-8")
            if name in fields:
                raise ConfigError(f"{self.text!r:.200} names the field {name!r} twice")
            self._expect(": ")
            fields[name] = self.type(depth)
        self._expect(">")
        return pa.struct(list(fields.items()))

    def map(self, depth: int) -> pa.DataType:
        key = self.type(depth)
        self._expect(", ")
        item = self.type(depth)
        self._expect(">")
        return pa.map_(key, item)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _expect(self, text: str) -> None:
        if not self.text.startswith(text, self.at):
            raise self.error()
        self.at += len(text)


_NESTED: dict[str, Callable[[_Parser, int], pa.DataType]] = {
    "fixed_size_list<": _Parser.fixed_list,
    "list<": _Parser.list,
    "struct<": _Parser.struct,
    "map<": _Parser.map,
}


def _simple(text: str) -> pa.DataType | None:
    """Return the type of a name without parameters, or None."""
    if zoned := _ZONED.fullmatch(text):
        return pa.timestamp(zoned[1], zoned[2])
    if size := _FIXED_SIZE_BINARY.fullmatch(text):
        return pa.binary(int(size[1])) if int(size[1]) < 1 << 31 else None
    try:
        if decimal := _DECIMAL.fullmatch(text):
            make = pa.decimal128 if decimal[1] == "128" else pa.decimal256
            return make(int(decimal[2]), int(decimal[3]))
        return plain(pa.type_for_alias(text))
    except ValueError:
        return None
