"""Code generation of functions that copy single samples, specialized for their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from streamplug_parquet.arrow_conversion import NARROW_FLOATS
from streamplug_parquet.sizes import HEAD
from streamplug_parquet.values import ArrowValue, Binary, Fixed, Text

CopiedRow = tuple[tuple[Any, ...], int]

_CODE = """\
def row(sample):
    try:
        if type(sample) is dict and len(sample) == {count}:
            {names} = values = get(sample)
            if {checks}:
                {made}
                return {row}, {sizes}
    except Exception:
        pass
    return with_care(sample)
"""


_TERMS_PER_GROUP = 100


class _Cell(NamedTuple):
    """The code for one column.

    Attributes:
        check: Condition for the fast path; empty if there is none.
        made: Expression for the copied value and its size; empty if the value is kept unchanged.
        size: Expression for the size, without `constant`; empty if there is none.
        constant: Constant part of the size, in bytes.
    """

    check: str
    made: str
    size: str
    constant: int


def row_function(
    columns: Sequence[tuple[str, ArrowValue]], with_care: Callable[[Mapping[str, Any]], CopiedRow]
) -> Callable[[Mapping[str, Any]], CopiedRow]:
    """Return a function that copies a sample to an immutable tuple and returns its size in bytes.

    Args:
        columns: Names and encodings.
        with_care: Fallback for unusual samples; raises the error for invalid ones.
    """
    cells = [_cell(number, value) for number, (_, value) in enumerate(columns)]
    names = [name for name, _ in columns]
    get = itemgetter(*names) if len(names) > 1 else lambda sample: (sample[names[0]],)
    known: dict[str, Any] = {"get": get, "with_care": with_care}
    for number, (_, value) in enumerate(columns):
        known[f"copy{number}"] = value.copy_value
        if value.nullable:
            known[f"none{number}"] = value.none
    exec(_compiled(tuple(cells)), known)  # noqa: S102 - numbered names, none from the data
    row: Callable[[Mapping[str, Any]], CopiedRow] = known.pop("row")
    return row


def _cell(number: int, value: ArrowValue) -> _Cell:
    v, maybe = f"v{number}", value.nullable
    if isinstance(value, Fixed) and value.python is not None:
        check = f"type({v}) is {value.python.__name__}"
        if value.python is int:
            bounds = np.iinfo(value.base)
            check += f" and {bounds.min} <= {v} <= {bounds.max}"
        if value.inner in NARROW_FLOATS:  # what is larger may become infinite
            limit = float(np.finfo(value.base).max)
            check += f" and ({-limit} <= {v} <= {limit} or {v} - {v} != 0)"
        return _Cell(_or_none(check, v, maybe), "", "", (value.width or 0) + maybe)
    if type(value) is Text:
        size = f"(len({v}) if {v}.isascii() else len({v}.encode()))"
        return _Cell(
            _or_none(f"type({v}) is str", v, maybe), "", _if_given(size, v, maybe), HEAD + maybe
        )
    if type(value) is Binary:
        check = _or_none(f"type({v}) is bytes", v, maybe)
        return _Cell(check, "", _if_given(f"len({v})", v, maybe), HEAD + maybe)
    made = f"copy{number}({v})"
    made = f"none{number} if {v} is None else {made}" if maybe else made
    return _Cell("", made, f"s{number}", int(maybe))


def _or_none(check: str, v: str, maybe: bool) -> str:
    return f"({v} is None or {check})" if maybe else check


def _if_given(size: str, v: str, maybe: bool) -> str:
    return f"(0 if {v} is None else {size})" if maybe else size


def _sum_of(terms: Sequence[str]) -> str:
    """Return the code of a sum, in groups: Python does not compile a sum of thousands of terms."""
    groups = (
        " + ".join(terms[start : start + _TERMS_PER_GROUP])
        for start in range(0, len(terms), _TERMS_PER_GROUP)
    )
    return " + ".join(f"({group})" for group in groups)


@lru_cache(256)
def _compiled(cells: tuple[_Cell, ...]) -> CodeType:
    made = [f"v{n}, s{n} = {cell.made}" for n, cell in enumerate(cells) if cell.made]
    values = "".join(f"v{n}, " for n in range(len(cells)))
    code = _CODE.format(
        count=len(cells),
        names=values,
        checks=" and ".join(cell.check for cell in cells if cell.check) or "True",
        made="; ".join(made) or "pass",
        row=f"({values})" if made else "values",
        sizes=_sum_of([str(sum(c.constant for c in cells)), *(c.size for c in cells if c.size)]),
    )
    return compile(code, "<a row of Parquet>", "exec")
