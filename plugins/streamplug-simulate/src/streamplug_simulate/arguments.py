"""What users write of a run, on the command line or on the page, made into arguments of `Assumed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamplug.config import parse_bytes, parse_count
from streamplug.errors import ConfigError


def told(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the arguments of `Assumed` that some texts mean; what is None or empty is left out.

    Args:
        texts: By the name of the argument. ``"default"`` leaves the block size and the canonical nodes to the
            shuffle, ``"auto"`` lets predownload adapt, ``"none"`` is no limit of the cache and no shuffle.

    Raises:
        ConfigError: If one has no meaning.
    """
    found = {}
    for name, text in texts.items():
        if name not in _MEANINGS:
            raise ConfigError(
                f"{name}={text!r:.60}: no such setting; there are {', '.join(_MEANINGS)}"
            )
        if text is not None and text.strip():
            found[name] = _MEANINGS[name](text.strip(), name)
    return found


def _or(word: str, meaning: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    return lambda text, name: None if text == word else meaning(text, name)


def _bytes(text: str, name: str) -> int:
    return parse_bytes(text, name)


def _count(text: str, name: str) -> int:
    return parse_count(text, name)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r:.60}: expected a number") from None


def _name(text: str, _: str) -> str:
    return text


_MEANINGS: dict[str, Callable[[str, str], Any]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "workers": _count,
    "prefetch_factor": _count,
    "batch_size": _count,
    "shuffle": _name,
    "block_size": _or("default", _count),
    "canonical_nodes": _or("default", _count),
    "predownload": _or("auto", _count),
    "cache_limit": _or("none", _bytes),
    "bandwidth": _bytes,
    "latency": _number,
    "step_seconds": _number,
    "epochs": _count,
    "price": _number,
}
