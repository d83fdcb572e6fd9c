"""Identity of a data set in parts: inputs and options that a run shares with the one that it continues."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from io import BytesIO
from os import PathLike, fspath
from typing import Any

import xxhash

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError


def make_plan(
    parts: Sequence[Any], columns: Mapping[str, str], options: Mapping[str, Any], *, batched: bool
) -> dict[str, Any]:
    """Return the JSON content of a plan.

    Args:
        parts: As for `write_parts`, as is `columns`.
        columns: See there.
        options: Options of `Writer`; ``hashes`` is set.
        batched: Whether samples are given in batches.

    Raises:
        ConfigError: If a part or an option is no JSON value.
    """
    try:
        named = json.dumps(
            [part if not isinstance(part, PathLike) else fspath(part) for part in parts]
        )
    except TypeError as error:
        raise ConfigError(
            f"parts=: {error}; name parts by paths, texts, numbers, or lists and dicts of them, and let "
            "make_samples= find what they stand for"
        ) from error
    limit = options.get("size_limit", "64mb")
    max_samples = options.get("max_samples_per_shard")
    plan = {
        "batched": batched,
        "columns": dict(columns),
        "compression": options.get("compression"),
        "extra_keys": options.get("extra_keys", "error"),
        "format": _describe_format(options.get("format", "mds")),
        "hashes": list(options["hashes"]),
        # NumPy's integers are valid, but are no JSON.
        "max_samples_per_shard": None if max_samples is None else int(max_samples),
        "parts": len(parts),
        "parts_digest": xxhash.xxh3_64_hexdigest(named.encode()),
        "size_limit": None if limit is None else parse_bytes(limit, "size_limit"),
        "version": 1,
    }
    try:
        normalized: dict[str, Any] = json.loads(json.dumps(plan))
    except (TypeError, ValueError) as error:  # before another data set is removed
        raise ConfigError(
            f"an option of the data set cannot be written as JSON: {error}"
        ) from error
    return normalized


def _describe_format(format_: Any) -> str:
    """Return a name of a format that differs for other options of a format object."""
    if isinstance(format_, str):
        return format_
    state = BytesIO()
    pickler = pickle.Pickler(state, protocol=4)
    pickler.fast = True  # the bytes must not depend on which equal strings are the same object
    name = type(format_).__name__
    try:
        pickler.dump(format_)
    except Exception:  # noqa: BLE001 - the methods of any class are called
        return name
    return f"{name} {xxhash.xxh3_64_hexdigest(state.getvalue())}"
