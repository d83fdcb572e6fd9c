"""Directories of caches without `local=`: the user's, and the one for shards of remote data sets.

Both are ``STREAMPLUG_CACHE_DIR`` if it is set. Otherwise, the user's is ``streamplug`` in
``XDG_CACHE_HOME`` or ``~/.cache``: it has what is derived from data sets, such as results of scans, and the
decompressed shards of local ones. Shards of remote data sets are in a private temporary directory, which
also replaces a user's directory that cannot be used.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

from streamplug.errors import ConfigError, StorageError
from streamplug.interfaces import public_url
from streamplug.plugin import local_path
from streamplug.transfer import check_private, make_temp_root, temp_root

CACHE_DIR_VARIABLE = "STREAMPLUG_CACHE_DIR"
_MAX_LABEL = 40
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def user_cache_dir() -> Path:
    """Return the user's cache directory, creating it if necessary.

    If the usual one is not writable, belongs to another user, or no home directory is known, it is that of
    `default_cache_dir`, which may not exist yet. A usual one to which others can write is made private.

    Raises:
        ConfigError: If ``STREAMPLUG_CACHE_DIR`` is a URL.
        StorageError: If ``STREAMPLUG_CACHE_DIR``, or the directory for temporary files, is not writable.
        AccessDenied: If the parent of the temporary directory belongs to another user.
    """
    chosen = _chosen_dir()
    if chosen is not None:
        try:
            chosen.mkdir(parents=True, exist_ok=True)
            _check_writable(chosen)
        except OSError as error:
            raise StorageError(
                f"{CACHE_DIR_VARIABLE}={chosen}: {error.strerror or error}; name a directory that can be "
                "written to"
            ) from error
        return chosen
    # Not writable, another user's (AccessDenied), or no home directory (RuntimeError).
    with suppress(OSError, RuntimeError):
        usual = _usual_dir()
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(usual.resolve())
        _check_writable(usual)
        return usual
    return default_cache_dir()


def source_cache_dir(url: str) -> Path:
    """Return the subdirectory of the user's cache for a data set; `url` is without credentials."""
    label = _UNSAFE.sub("-", url.rstrip("/").rpartition("/")[2])[-_MAX_LABEL:].lstrip("-.")
    digest = blake2s(url.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return user_cache_dir() / (f"{label}-{digest}" if label else digest)


def default_cache_dir(*, make: bool = True) -> Path:
    """Return the directory for shards of remote data sets without `local=`.

    It is ``STREAMPLUG_CACHE_DIR``, or else ``kept`` in the private parent of temporary directories. `make`
    creates and checks the former, or that parent.

    Raises:
        ConfigError: If ``STREAMPLUG_CACHE_DIR`` is a URL.
        StorageError: If there is no place for temporary directories, or with `make`, if
            ``STREAMPLUG_CACHE_DIR`` is not writable.
        AccessDenied: With `make`, if the parent of temporary directories belongs to another user.
    """
    chosen = _chosen_dir()
    if chosen is not None:
        return user_cache_dir() if make else chosen
    return (make_temp_root() if make else temp_root()) / "kept"


def _chosen_dir() -> Path | None:
    chosen = os.environ.get(CACHE_DIR_VARIABLE, "")
    if not chosen.strip():
        return None
    path = local_path(chosen)
    if path is None:
        raise ConfigError(
            f"{CACHE_DIR_VARIABLE}={public_url(chosen)}: must be a path on this machine"
        )
    return path.absolute()


def _usual_dir() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    root = Path(caches) if Path(caches).is_absolute() else Path.home() / ".cache"
    return root / "streamplug"


def _check_writable(directory: Path) -> None:
    with tempfile.TemporaryFile(dir=directory):
        pass
