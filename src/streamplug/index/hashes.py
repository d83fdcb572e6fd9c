"""Digests of files, by the algorithm names of hashlib and xxhash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol

import xxhash

from streamplug.errors import ConfigError
from streamplug.types import Buffer

DEFAULT_HASHES = ("xxh3_64",)
"""Digests that are written by default: the fastest one, so that damage is always detected."""


class Digest(Protocol):
    """Incremental digest, as those of hashlib."""

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the hexadecimal digest of all bytes so far."""


@cache
def hash_names() -> tuple[str, ...]:
    """Return the names of all hash algorithms, sorted."""
    from_hashlib = {name for name in hashlib.algorithms_available if hasattr(hashlib, name)}
    fixed = {name for name in from_hashlib if not name.startswith("shake_")}
    return tuple(sorted(fixed | set(xxhash.algorithms_available)))


def new_hash(name: str) -> Digest:
    """Return a new digest, or raise ConfigError for an unknown name."""
    if name not in hash_names():
        raise ConfigError(f"unknown hash {name!r}; available: {', '.join(hash_names())}")
    if name in xxhash.algorithms_available:
        return getattr(xxhash, name)()  # type: ignore[no-any-return]  # a name of algorithms_available
    return hashlib.new(name, usedforsecurity=False)


def chosen_hashes(hashes: Sequence[str] | None) -> tuple[str, ...]:
    """Validate and sort names of digests; None is `DEFAULT_HASHES`."""
    if hashes is None:
        return DEFAULT_HASHES
    if isinstance(hashes, str) or not isinstance(hashes, Iterable):
        raise ConfigError(
            f"hashes={hashes!r:.80}: expected a list of names, such as ['sha1'], [] for none, or None for "
            f"{list(DEFAULT_HASHES)}"
        )
    names = list(hashes)  # once, as it may be an iterator
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"hashes={hashes!r:.80}: expected names, such as 'sha1', got {name!r:.80}"
            )
        new_hash(name)  # raises for unknown names
    return tuple(sorted(set(names)))


def digests(names: Iterable[str], buffers: Iterable[Buffer]) -> dict[str, str]:
    """Return the hex digests of concatenated buffers, by name of the algorithm."""
    running = {name: new_hash(name) for name in names}
    for buffer in buffers:
        for digest in running.values():
            digest.update(buffer)
    return {name: digest.hexdigest() for name, digest in running.items()}
