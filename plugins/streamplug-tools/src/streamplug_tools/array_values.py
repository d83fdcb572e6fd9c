"""Lists and Boolean values of Parquet as arrays and numbers of other formats, and arrays as lists."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from streamplug.errors import EncodeError
from streamplug.types import ColumnValues
from streamplug_tools.time_values import Convert

_ARROW_NAMES = {"float16": "halffloat", "float32": "float", "float64": "double"}
"""Names of Arrow for dtypes that have another one."""
_DTYPES = {arrow: name for name, arrow in _ARROW_NAMES.items()} | {"bool": "uint8"}
_LIST = re.compile(r"list<(bool|u?int(?:8|16|32|64)|halffloat|float|double)>\??")
_ITEM = re.compile(
    r"^(?:list<|fixed_size_list<)+(bool|u?int(?:8|16|32|64)|halffloat|float|double)>"
)
_ARRAY = re.compile(r"ndarray:([a-z]+[0-9]+)(?::([0-9,]+))?")


def array_specs(spec: str) -> list[str]:
    """Return the encodings of other formats that store the values of an encoding as they are.

    A list that may be missing counts as one that is there: an empty one looks alike in the footer.
    """
    if spec == "bool":
        return ["uint8"]
    if numbers := _LIST.fullmatch(spec):
        return [f"ndarray:{_DTYPES.get(numbers[1], numbers[1])}"]
    if array := _ARRAY.fullmatch(spec):
        item = _ARROW_NAMES.get(array[1], array[1])
        if array[2] is None:
            return [f"list<{item}>"]
        for size in reversed(array[2].split(",")):
            item = f"fixed_size_list<{item}>[{size}]"
        return [item]
    return []


def make_array_converter(source: str, target: str) -> Convert | None:
    """Return a converter of lists to arrays; None if the values are stored unchanged.

    Args:
        source: Encoding of the column.
        target: Encoding to store.

    Returns:
        A function of a sequence of values, which raises `EncodeError` if one is missing, or no array.
    """
    name, _, rest = target.partition(":")
    item = _ITEM.search(source)
    if name != "ndarray" or item is None:
        return None
    dtype = np.dtype(rest.partition(":")[0] or _DTYPES.get(item[1], item[1]))

    def convert(values: ColumnValues) -> ColumnValues:
        return [_array(value, dtype) for value in values]

    return convert


def _array(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None:
        raise EncodeError("a list is missing, which no array says; store the column as json")
    try:
        found = np.asarray(value)
    except ValueError:  # of lists of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "iufb":
        raise EncodeError(f"{value!r:.80} is no array of numbers; store the column as json")
    with np.errstate(all="ignore"):
        stored = found.astype(dtype)
    exact = stored == found if dtype.kind != "f" else np.isinf(stored) == np.isinf(found)
    if not np.all(exact):
        raise EncodeError(f"{value!r:.80} has numbers that {dtype} cannot hold; take a larger type")
    return stored
