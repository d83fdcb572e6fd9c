"""Replaces values of JSON, such as an object by a number, which changes of single bytes seldom do."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 0.5, 1e300, float("inf"), float("nan")),
    *(1 << 31, 1 << 63, -(1 << 63) - 1, 10**30),
    *("", "x", "../x", "/etc/passwd", "\ud800", "int", "9" * 5000),
    *([], [1], [[]], [None], {}, {"a": 1}),
]
"""What values are replaced with. Python's JSON has infinity and NaN, too."""

Place = tuple[str | int, ...]


def replace_value(data: bytes, draw: random.Random) -> bytes | None:
    """Return JSON, or lines of it, with a value replaced or removed; None if the data is something else."""
    for parts in ([data], data.split(b"\n")):
        number = draw.choice([n for n, part in enumerate(parts) if part] or [0])
        tree = _parse(parts[number])
        if isinstance(tree, (dict, list)):
            with suppress(RecursionError):
                changed = json.dumps(_changed(tree, draw)).encode()
                return b"\n".join([*parts[:number], changed, *parts[number + 1 :]])
    return None


def _parse(text: bytes | str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _changed(tree: Any, draw: random.Random) -> Any:
    """Return JSON with a change; the JSON may be in a string of other JSON."""
    place = draw.choice(list(_places(tree)))
    if not place:
        return draw.choice(VALUES)
    parent = tree
    for key in place[:-1]:
        parent = parent[key]
    value = parent[place[-1]]
    inner = _parse(value) if isinstance(value, str) else None
    if isinstance(inner, (dict, list)) and draw.random() < 0.8:
        parent[place[-1]] = json.dumps(_changed(inner, draw))
    elif draw.random() < 0.1:
        del parent[place[-1]]
    else:
        parent[place[-1]] = draw.choice(VALUES)
    return tree


def _places(tree: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    for key in (
        tree if isinstance(tree, dict) else range(len(tree) if isinstance(tree, list) else 0)
    ):
        yield from _places(tree[key], (*place, key))
