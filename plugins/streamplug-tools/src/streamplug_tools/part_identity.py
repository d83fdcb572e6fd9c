"""Identity of a data set in parts: inputs and options that a run shares with the one that it continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import xxhash

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError
from streamplug.plugin import local_path
from streamplug_tools.function_digest import digest_function


def declared_identity(make_samples: object) -> str | None:
    """Return the text by which a function says what it makes of a part; None if it does not."""
    identity = getattr(make_samples, "identity", None)
    return identity if isinstance(identity, str) else None


def make_plan(
    parts: Sequence[Any],
    make_samples: object,
    columns: Mapping[str, str],
    options: Mapping[str, Any],
    *,
    batched: bool,
) -> dict[str, Any]:
    """Return the JSON content of a plan.

    Args:
        parts: As for `write_parts`, as are `make_samples` and `columns`.
        make_samples: See there.
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
    identity = declared_identity(make_samples)
    plan = {
        "batched": batched,
        "columns": dict(columns),
        "compression": options.get("compression"),
        "extra_keys": options.get("extra_keys", "error"),
        "files": None if identity is not None else _digest_files(parts),
        "format": _describe_format(options.get("format", "mds")),
        "function": digest_function(make_samples) if identity is None else identity,
        "hashes": list(options["hashes"]),
        # NumPy's integers are valid, but are no JSON.
        "max_samples_per_shard": None if max_samples is None else int(max_samples),
        "parts": len(parts),
        "parts_digest": xxhash.xxh3_64_hexdigest(named.encode()),
        "size_limit": None if limit is None else parse_bytes(limit, "size_limit"),
        "version": 2,
    }
    try:
        normalized: dict[str, Any] = json.loads(json.dumps(plan))
    except (TypeError, ValueError) as error:  # before another data set is removed
        raise ConfigError(
            f"an option of the data set cannot be written as JSON: {error}"
        ) from error
    return normalized


def changed_files(existing: Any, plan: Mapping[str, Any]) -> set[int] | None:
    """Return the numbers of the parts whose files have changed; None if plans differ in anything else.

    Args:
        existing: Content of a plan file.
        plan: The plan of this call. If it compares no files, none have changed.
    """
    if not isinstance(existing, dict) or {**existing, "files": plan["files"]} != plan:
        return None
    if plan["files"] is None:
        return set()
    old, new = existing.get("files") or {}, plan["files"]
    return {int(number) for number in {*old, *new} if old.get(number) != new.get(number)}


def _digest_files(parts: Sequence[Any]) -> dict[str, str]:
    """Return the digest of the files of each part that names local files, by its number."""
    files = ((number, list(_find_files(part))) for number, part in enumerate(parts))
    return {
        str(number): xxhash.xxh3_64_hexdigest(json.dumps(of_part).encode())
        for number, of_part in files
        if of_part
    }


def _find_files(value: object) -> Iterator[tuple[str, int, int]]:
    """Yield the path, size and time of modification of each local file that a part names.

    A directory stands for the files directly in it.
    """
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_files(item)
    elif isinstance(value, Mapping):
        yield from _find_files(list(value.values()))
    elif isinstance(value, (str, PathLike)) and fspath(value):
        with suppress(OSError, ValueError, ConfigError):  # it is no path, or cannot be read
            path = local_path(str(fspath(value)))
            status = None if path is None else path.stat()
            if path is None or status is None:
                return
            if S_ISREG(status.st_mode):
                yield str(path), status.st_size, status.st_mtime_ns
            elif S_ISDIR(status.st_mode):
                yield from _files_in(path)


def _files_in(folder: Path) -> list[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        files = [(entry.path, entry.stat()) for entry in entries if entry.is_file()]
    return sorted((path, status.st_size, status.st_mtime_ns) for path, status in files)


def _describe_format(format_: Any) -> str:
    """Return a name of a format that differs for other options of a format object."""
    return (
        format_
        if isinstance(format_, str)
        else f"{type(format_).__name__} {digest_function(format_)}"
    )
