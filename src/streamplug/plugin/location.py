"""Parsing of URLs and paths, and the storages that they refer to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

from streamplug.errors import ConfigError, PluginError, prefix_errors
from streamplug.interfaces import Storage, public_url, public_urls
from streamplug.plugin.catalog import load_catalog
from streamplug.plugin.provider import ANY_SCHEME
from streamplug.plugin.registry import is_known, resolve

_URL = re.compile(
    r"(?:(?P<by>[a-z0-9][a-z0-9._-]*):)?(?P<scheme>[a-z][a-z0-9+.-]*)://?", re.IGNORECASE
)
_FILE_URL = re.compile(r"(?:file|local):(?://|(?=/))", re.IGNORECASE)
"""Start of the URL of a local path; ``local`` is another name of ``file`` in fsspec."""

_CHAIN = re.compile(r"[a-z][a-z0-9+.-]*::(?=/|.*://)")
"""Start of a chain of fsspec, such as ``simplecache::s3://bucket/set``; paths may have ``::``, too."""


def is_url(location: str) -> bool:
    """Return whether a location is a URL rather than a local path."""
    return _URL.match(location) is not None or _CHAIN.match(location) is not None


def strip_client(location: str) -> str:
    """Return a URL without its client or distribution.

    >>> strip_client("obstore:S3://bucket/set")
    's3://bucket/set'
    """
    match = _URL.match(location)
    if match is None:
        return location
    return match["scheme"].lower() + location[match.end("scheme") :]


def local_path(location: str) -> Path | None:
    """Return the path of a location on the local file system, or None if it is remote.

    Raises:
        ConfigError: If no file can have such a path.
    """
    file_url = _FILE_URL.match(location)
    if is_url(location) and not file_url:
        return None
    name = location[file_url.end() :] if file_url else location
    try:
        is_valid = b"\0" not in os.fsencode(name)
        path = Path(name) if file_url else Path(name).expanduser()
    except (UnicodeEncodeError, ValueError, RuntimeError):  # RuntimeError: no such user
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{location!r:.200}: no file can have such a path")
    return path


def is_http(location: str) -> bool:
    """Return whether a location is an HTTP URL, whose path may be percent-encoded."""
    match = _URL.match(location)
    return match is not None and match["scheme"].lower().rpartition("+")[2] in {"http", "https"}


def split_query(location: str) -> tuple[str, str]:
    """Return an HTTP URL without its query, and the query with its question mark; others have none."""
    if not is_http(location):
        return location, ""
    path, mark, query = location.partition("?")
    return path, mark + query


def join(location: str, *parts: str) -> str:
    """Append path parts to a location; the query of an HTTP URL stays behind its path."""
    location, query = split_query(location)
    return "/".join([location.rstrip("/"), *(part for part in parts if part)]) + query


def absolute_location(location: str) -> str:
    """Return a location that is valid in any working directory."""
    path = local_path(location)
    return location if path is None else str(path.absolute())


def output_locations(out: object) -> tuple[str, ...]:
    """Return the one location of a writer's `out`, or both: local and remote."""
    locations = out if isinstance(out, tuple) else (out,)
    what = f"out={public_urls(out)!r:.200}"
    if len(locations) not in (1, 2) or not all(
        isinstance(item, (str, PathLike)) for item in locations
    ):
        raise ConfigError(f"{what}: expected a path, a URL, or a pair of both")
    if not all(map(str, locations)):
        raise ConfigError(f"{what}: a location is empty")
    if len(locations) == 2:
        first, second = (local_path(str(item)) for item in locations)
        if first is None:
            raise ConfigError(f"{what}: the first of the pair must be a path on this machine")
        if second is not None and os.path.realpath(first) == os.path.realpath(second):
            # Files would be uploaded to themselves, then removed.
            raise ConfigError(f"{what}: both are the same directory; give it once, not in a pair")
    return tuple(map(str, locations))


def open_storage(location: str, options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage of a URL or path.

    The URL scheme selects it; ``distribution:scheme://…`` selects one of several, and so does
    ``client:scheme://…`` for a storage named ``client+scheme``, such as ``obstore+s3``. Other schemes are
    left to a storage named `ANY_SCHEME`, if it supports them.

    Args:
        location: Such as ``"/data/set"``, ``"s3://bucket/set"``, ``"memory://set"``.
        options: Options of the storage.

    Raises:
        PluginError: If nothing provides the scheme.
        ConfigError: If the options are not a mapping with string keys.
    """
    values: Any = {} if options is None else options
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ConfigError("storage_options: expected a mapping of names to values")
    name, url = _storage_name(location)
    with prefix_errors(public_url(url), PluginError):
        storage_class = _find_class(name)
    return storage_class(url, **values)


def _storage_name(location: str) -> tuple[str, str]:
    """Return the name of a location's storage, and the URL that the storage is opened with."""
    path = local_path(location)
    if path is not None:
        return "file", str(path.absolute())
    match = _URL.match(location)
    if match is None:  # a chain, such as simplecache::s3://…
        return location.partition("::")[0], location
    scheme, url = match["scheme"].lower(), strip_client(location)
    if match["by"]:
        prefix = match["by"].lower()
        client = f"{prefix}+{scheme}"
        is_client = client in load_catalog()["storage"] or is_known("storage", client)
        return client if is_client else f"{prefix}:{scheme}", url
    return scheme, url


def _find_class(name: str) -> type[Storage]:
    """Return the class of a storage's name, or the one for any scheme if nothing has the name."""
    # A general client must not silently replace a first-party plugin that is not installed.
    is_other = not is_known("storage", name) and name not in load_catalog()["storage"]
    if is_other and is_known("storage", ANY_SCHEME):
        general = cast(type[Storage], resolve("storage", ANY_SCHEME))
        if general.supports_scheme(name):
            return general
    return cast(type[Storage], resolve("storage", name))
