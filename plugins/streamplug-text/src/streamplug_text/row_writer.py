"""Code generation of functions that encode single samples, specialized for their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import msgspec

from streamplug.types import Buffer
from streamplug_text.values import FieldValue

Parts = tuple[Sequence[Buffer], int]

_CODE = """\
def parts(sample):
    try:
        {values}
        if type(sample) is not dict or len(sample) != {count} or {odd}:
            raise ValueError
        line = f"{line}".encode()
    except Exception:
        return with_care(sample)
    return (line,), len(line)
"""
# Within these bounds, msgspec prints the same text as Python, but faster.
_FLOAT = (
    "{{number(v{n}).decode() if 1e-4 <= v{n} < 1e16 or -1e16 < v{n} <= -1e-4 or not v{n} "
    "else text{n}(v{n})}}"
)
_TEXTS = {int: "{{v{n}}}", float: _FLOAT, str: "{{text{n}(v{n})}}"}


def row_writer(
    columns: Mapping[str, FieldValue],
    between: Sequence[str],
    marks: Sequence[str],
    with_care: Callable[[Mapping[str, Any]], Parts],
) -> Callable[[Mapping[str, Any]], Parts]:
    """Return a function that encodes a sample as a line, as `ShardWriter.encode_pieces`.

    Args:
        columns: Columns by name, in stored order.
        between: Text before the first value, between values, and after the last.
        marks: Texts that string values must not contain as they are not quoted; empty if they are.
        with_care: Fallback for unusual samples; raises the error for invalid ones.
    """
    known: dict[str, Any] = {"number": msgspec.json.Encoder().encode, "with_care": with_care}
    known |= {f"between{n}": text for n, text in enumerate(between)}
    known |= {f"mark{n}": text for n, text in enumerate(marks)}
    for n, (name, value) in enumerate(columns.items()):
        known |= {f"name{n}": name, f"type{n}": value.plain, f"text{n}": value.render}
    kinds = tuple(value.plain for value in columns.values())
    exec(_compiled(kinds, len(marks)), known)  # noqa: S102 - numbered names, none from the data
    row: Callable[[Mapping[str, Any]], Parts] = known.pop("parts")
    return row


@lru_cache(256)
def _compiled(kinds: Sequence[type], marks: int) -> CodeType:
    odd = [f"type(v{n}) is not type{n}" for n in range(len(kinds))]
    texts = [_TEXTS[kind].format(n=n) for n, kind in enumerate(kinds)]
    for n, kind in enumerate(kinds):
        if kind is str and marks:
            odd += [f"mark{m} in v{n}" for m in range(marks)]
            texts[n] = f"{{v{n}}}"
    code = _CODE.format(
        values="; ".join(f"v{n} = sample[name{n}]" for n in range(len(kinds))),
        count=len(kinds),
        odd=" or ".join(odd),
        line="".join(f"{{between{n}}}{text}" for n, text in enumerate(texts))
        + f"{{between{len(kinds)}}}",
    )
    return compile(code, "<a line>", "exec")
