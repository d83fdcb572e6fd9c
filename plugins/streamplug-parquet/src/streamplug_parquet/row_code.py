"""Makes what stores a sample as a row: a function that is written for its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from types import CodeType
from typing import Any, NamedTuple

from streamplug.types import Buffer
from streamplug_parquet.values import Binary, Fixed, Text, Value

Row = tuple[Sequence[Buffer], int]

_CODE = """\
def row(sample):
    try:
        if type(sample) is dict and len(sample) == {count}:
            {names} = get(sample)
            if {checks}:
                {bodies}
                head = pack({packed})
                total = len(head){sizes}
                if total > large:
                    return (head, {pieces}), total
                return (head{joined},), total
    except Exception:
        pass
    return with_care(sample)
"""


class _Cell(NamedTuple):
    """The code for one column.

    Attributes:
        letters: How the head of a row holds it.
        packed: What is put there.
        check: What must be so; empty if anything is tried.
        body: What follows the head; empty if nothing does.
    """

    letters: str
    packed: str
    check: str
    body: str


def row_function(
    columns: Sequence[tuple[str, Value]], with_care: Callable[[Mapping[str, Any]], Row], large: int
) -> Callable[[Mapping[str, Any]], Row]:
    """Return what stores a sample, in one piece or, from `large` bytes on, in several.

    Args:
        columns: Their names and encodings, in stored order.
        with_care: Stores a sample that is out of the ordinary, or says what is wrong with it.
        large: How many bytes.
    """
    cells = [_cell(number, value) for number, (_, value) in enumerate(columns)]
    names = [name for name, _ in columns]
    get = itemgetter(*names) if len(names) > 1 else lambda sample: (sample[names[0]],)
    known: dict[str, Any] = {"get": get, "with_care": with_care, "large": large}
    known["pack"] = Struct("<" + "".join(cell.letters for cell in cells)).pack
    for number, (_, value) in enumerate(columns):
        known[f"encode{number}"] = value.encode
        known[f"zero{number}"] = bytes(value.width or 0)
    exec(_compiled(tuple(cells)), known)  # noqa: S102 - numbered names, none from the data
    row: Callable[[Mapping[str, Any]], Row] = known.pop("row")
    return row


def _cell(number: int, value: Value) -> _Cell:
    v, maybe = f"v{number}", value.nullable
    given, flag = (f"{v} is not None, ", "?") if maybe else ("", "")
    if isinstance(value, Fixed) and value.letter:
        kind, zero = value.python.__name__, f"{v} if {v} is not None else 0"
        check = f"type({v}) is {kind}"
        return _Cell(
            flag + value.letter, given + (zero if maybe else v), _or_none(check, v, maybe), ""
        )
    made = f"encode{number}({v})"
    if value.width is not None:
        made = f"zero{number} if {v} is None else {made}" if maybe else made
        return _Cell(f"{flag}{value.width}s", given + made, "", "")
    check = ""
    if type(value) is Text:
        check, made = _or_none(f"type({v}) is str", v, maybe), f"{v}.encode()"
    elif type(value) is Binary:
        check, made = _or_none(f"type({v}) is bytes", v, maybe), v
    made = f"b'' if {v} is None else {made}" if maybe else made
    return _Cell(f"{flag}I", f"{given}len(b{number})", check, made)


def _or_none(check: str, v: str, maybe: bool) -> str:
    return f"({v} is None or {check})" if maybe else check


@lru_cache(256)
def _compiled(cells: tuple[_Cell, ...]) -> CodeType:
    bodies = {f"b{n}": cell.body for n, cell in enumerate(cells) if cell.body}
    code = _CODE.format(
        count=len(cells),
        names="".join(f"v{n}, " for n in range(len(cells))),
        checks=" and ".join(cell.check for cell in cells if cell.check) or "True",
        bodies="; ".join(f"{name} = {body}" for name, body in bodies.items()) or "pass",
        packed=", ".join(cell.packed for cell in cells),
        sizes="".join(f" + len({name})" for name in bodies),
        pieces="".join(f"{name}, " for name in bodies),
        joined="".join(f" + {name}" for name in bodies),
    )
    return compile(code, "<a row of Parquet>", "exec")
