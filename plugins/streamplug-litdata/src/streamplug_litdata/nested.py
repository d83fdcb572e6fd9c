"""Nested values: ``json`` leaves, and columns of several leaves."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import short_repr, undecodable_error, wrong_type_error

_TEXT_FROM = 0x21
"""The lowest first byte of JSON text; lower ones are type tags of the binary form."""

_MAX_DEPTH = 100


class JsonItem(Encoding):
    """``json``: lists and dicts in a tagged binary form or as JSON; written as JSON."""

    def encode(self, value: Any) -> bytes:
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(f"json cannot hold {short_repr(value)}: {error}") from error

    def decode(self, data: memoryview) -> Any:
        content = bytes(data)
        try:
            if not content or content[0] >= _TEXT_FROM:
                return json.loads(content)
            value, end = _tagged(content, 0, 0)
        except (ValueError, struct.error, IndexError, RecursionError) as error:
            raise DecodeError(f"{len(content)} bytes are no nested value: {error}") from error
        if end != len(content):
            raise DecodeError(f"a nested value ends at byte {end} of {len(content)}")
        return value


def _tagged(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Return the value at an offset, and its end."""
    if depth > _MAX_DEPTH:
        raise DecodeError("values are nested too deeply")
    tag, at = data[at], at + 1
    if tag in _SINGLE:
        return _SINGLE[tag](data, at)
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    _check_count(data, at, count)
    if tag == 5:
        values = {}
        for _ in range(count):
            key, at = _text(data, at)
            values[key], at = _tagged(data, at, depth + 1)
        return values, at
    if tag not in _READERS_BY_TAG:
        raise DecodeError(f"no value has the tag {tag}")
    return _READERS_BY_TAG[tag](data, at, count)


def _check_count(data: bytes, at: int, count: int) -> None:
    """Refuse more items than bytes follow: each item takes at least one."""
    if count > len(data) - at:
        raise DecodeError(f"{count} items in the {len(data) - at} bytes from byte {at} on")


def _part(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise DecodeError(f"a value ends at byte {at + size} of {len(data)}")
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    content, end = _part(data, at + 4, *struct.unpack_from("<I", data, at))
    return content.decode(), end


def _number(kind: str) -> Callable[[bytes, int], tuple[Any, int]]:
    return lambda data, at: (struct.unpack_from(kind, data, at)[0], at + struct.calcsize(kind))


def _json_text(data: bytes, at: int, count: int) -> tuple[Any, int]:
    content, end = _part(data, at, count)
    return json.loads(content), end


def _texts(data: bytes, at: int, count: int) -> tuple[list[str], int]:
    texts = []
    for _ in range(count):
        text, at = _text(data, at)
        texts.append(text)
    return texts, at


def _numbers(dtype: str) -> Callable[[bytes, int, int], tuple[list[Any], int]]:
    size = np.dtype(dtype).itemsize

    def read(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
        content, end = _part(data, at, size * count)
        return np.frombuffer(content, dtype).tolist(), end

    return read


def _bools(data: bytes, at: int, count: int) -> tuple[list[bool], int]:
    content, end = _part(data, at, count)
    return list(map(bool, content)), end


def _records(data: bytes, at: int, count: int) -> tuple[list[dict[str, Any]], int]:
    """Read dicts with the same keys and plain values."""
    (width,) = struct.unpack_from("<I", data, at)
    at += 4
    _check_count(data, at, width)
    keys, at = _texts(data, at, width)
    if count and not keys:  # nothing would bound their number, as they take no bytes
        raise DecodeError(f"{count} dicts have no keys")
    _check_count(data, at, count * width)
    records = []
    for _ in range(count):
        record = {}
        for key in keys:
            tag = data[at]
            if tag not in _FIELDS:
                raise DecodeError(f"no value of a record has the tag {tag}")
            record[key], at = _SINGLE[_FIELDS[tag]](data, at + 1)
        records.append(record)
    return records, at


_SINGLE: Mapping[int, Callable[[bytes, int], tuple[Any, int]]] = {
    7: _text,
    8: _number("<q"),
    9: _number("<d"),
    10: lambda data, at: (bool(data[at]), at + 1),
    11: lambda _, at: (None, at),
}
_READERS_BY_TAG: Mapping[int, Callable[[bytes, int, int], tuple[Any, int]]] = {
    0: _json_text,
    1: _texts,
    2: _numbers("<i8"),
    3: _numbers("<f8"),
    4: _bools,
    6: _records,
}
_FIELDS = {0x10: 11, 0x11: 7, 0x12: 8, 0x13: 9, 0x14: 10}

Branch: TypeAlias = "Encoding | dict[Any, Branch] | list[Branch] | tuple[Branch, ...]"
"""Structure of a column of several leaves."""


class Tree(Encoding):
    """A dict, list or tuple of leaves, stored as in a chunk: the size of each as uint32, then their bytes."""

    def __init__(self, branch: Branch) -> None:
        """Set the structure of values."""
        self._branch = branch
        self._leaves = list(_leaves(branch))
        self._names = list(_names(branch, ""))
        self.lazy = any(leaf.lazy for leaf in self._leaves)

    def with_max_value_bytes(self, size: int) -> Encoding:
        bounded = super().with_max_value_bytes(size)
        bounded.__dict__["_leaves"] = [leaf.with_max_value_bytes(size) for leaf in self._leaves]
        return bounded

    def encode(self, value: Any) -> bytes:
        parts = list(_encoded(self._branch, value))
        return struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)

    def decode(self, data: memoryview) -> Any:
        count = len(self._leaves)
        if len(data) < 4 * count:
            raise DecodeError(f"{len(data)} bytes do not hold {count} leaves")
        sizes = struct.unpack_from(f"<{count}I", data)
        ends = list(accumulate(sizes, initial=4 * count))
        if ends[-1] != len(data):
            raise DecodeError(f"its {count} leaves end at byte {ends[-1]} of {len(data)}")
        values = []
        for leaf, name, (start, stop) in zip(self._leaves, self._names, pairwise(ends)):
            try:
                values.append(leaf.decode(data[start:stop]))
            except Exception as error:
                raise undecodable_error(f"leaf {name}", error) from error
        return _made(self._branch, iter(values))


class UnsafeTree(Tree):
    """The same where decoding a leaf can run code."""

    unsafe: ClassVar[bool] = True


def make_tree(branch: Branch) -> Tree:
    """Return the encoding of a column of several leaves."""
    is_unsafe = any(leaf.unsafe for leaf in _leaves(branch))
    return UnsafeTree(branch) if is_unsafe else Tree(branch)


def _children(branch: Branch) -> Sequence[tuple[Any, Branch]]:
    if isinstance(branch, dict):
        return list(branch.items())
    if isinstance(branch, (list, tuple)):
        return [(str(number), child) for number, child in enumerate(branch)]
    return []


def _leaves(branch: Branch) -> Iterator[Encoding]:
    if isinstance(branch, Encoding):
        yield branch
    for _, child in _children(branch):
        yield from _leaves(child)


def _names(branch: Branch, path: str) -> Iterator[str]:
    if isinstance(branch, Encoding):
        yield path
    for name, child in _children(branch):
        yield from _names(child, f"{path}.{name}" if path else name)


def _made(branch: Branch, values: Iterator[Any]) -> Any:
    if isinstance(branch, Encoding):
        return next(values)
    if isinstance(branch, dict):
        return {name: _made(child, values) for name, child in branch.items()}
    return type(branch)(_made(child, values) for child in branch)


def _encoded(branch: Branch, value: Any) -> Iterator[bytes]:
    if isinstance(branch, Encoding):
        yield branch.encode(value)
        return
    children = _children(branch)
    if isinstance(branch, dict) != isinstance(value, dict) or len(value) != len(children):
        raise wrong_type_error("tree", f"{type(branch).__name__} of {len(children)}", value)
    for number, (name, child) in enumerate(children):
        yield from _encoded(child, value[name if isinstance(branch, dict) else number])
