"""Parse the texts of the command line and the page into arguments of `Scenario`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamplug.config import parse_bytes, parse_count
from streamplug.errors import ConfigError


def parse_arguments(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Return arguments of `Scenario` from texts; None and empty texts are left out.

    Args:
        texts: Texts by argument. ``"default"`` is the default of the block size and
            the canonical nodes, ``"auto"`` adapts predownload, ``"none"`` is no cache limit and no shuffle.

    Raises:
        ConfigError: If a text is invalid.
    """
    arguments = {}
    for name, text in texts.items():
        if name not in _PARSERS:
            raise ConfigError(
                f"{name}={text!r:.60}: unknown setting; expected one of {', '.join(_PARSERS)}"
            )
        if text is not None and text.strip():
            arguments[name] = _PARSERS[name](text.strip(), name)
    return arguments


def _none_or(word: str, parse: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    return lambda text, name: None if text == word else parse(text, name)


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


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "workers": _count,
    "prefetch_factor": _count,
    "batch_size": _count,
    "shuffle": _name,
    "block_size": _none_or("default", _count),
    "canonical_nodes": _none_or("default", _count),
    "predownload": _none_or("auto", _count),
    "cache_limit": _none_or("none", _bytes),
    "bandwidth": _bytes,
    "latency": _number,
    "step_seconds": _number,
    "epochs": _count,
    "price": _number,
}
