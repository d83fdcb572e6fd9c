"""`merge_index` of `streaming.base.util`."""

from __future__ import annotations

from typing import Any

from streamplug_tools import merge as merging

from streamplug.errors import NotFound
from streamplug.plugin import local_path
from streamplug_mosaic.compat.checks import MissingIndexError


def merge_index(*args: Any, **kwargs: Any) -> None:
    """Write the index of a data set of parts: ``merge_index(parts, out, …)`` or ``merge_index(out, …)``.

    Args:
        *args: ``index_file_urls`` if there are some, ``out``, ``keep_local``, ``download_timeout``.
        **kwargs: The same by name. Without ``keep_local``, no merged index stays on this machine.

    Raises:
        MissingIndexError: If a part has no index.
        ConfigError: As for `streamplug.merge_index`.
    """
    names = ["index_file_urls", "out", "keep_local", "download_timeout"]
    if not (args and isinstance(args[0], list)):
        del names[0]
    arguments = {**dict(zip(names, args)), **kwargs}
    if "index_file_urls" in arguments:
        parts = map(_strip, arguments["index_file_urls"])
        # Each part once, as with mosaicml-streaming.
        located = dict.fromkeys(_locate(part) for part in dict.fromkeys(parts))
        arguments["index_file_urls"] = list(located)
    places = [arguments.pop(name) for name in ("index_file_urls", "out") if name in arguments]
    try:
        merging.merge_index(*places, **arguments)
    except NotFound as error:
        raise MissingIndexError(f"Failed to download index.json: {error}") from error
    if not arguments.get("keep_local", True) and isinstance(places[-1], str):
        folder = local_path(places[-1])
        if folder is not None:
            (folder / "index.json").unlink()


def _strip(part: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return the location of a part, or a pair of them, without surrounding blanks and final slashes."""
    if isinstance(part, str):
        return part.strip().rstrip("/")
    local, remote = part
    return local.strip().rstrip("/"), remote.strip().rstrip("/")


def _locate(part: str | tuple[str, str]) -> str:
    """Return the index of a part: of a pair the local one, if it exists."""
    local, remote = (part, "") if isinstance(part, str) else part
    path = local_path(local)
    if path is None or path.exists():
        return local
    if remote:
        return remote
    raise MissingIndexError(
        f"Failed to download index.json: {path} does not exist. Check data availability!"
    )
