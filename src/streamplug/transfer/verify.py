"""Comparison of a downloaded or stored file with the size and the digest in the index."""

from __future__ import annotations

from pathlib import Path

from streamplug.errors import ConfigError, CorruptShardError, HashMismatchError
from streamplug.index import hash_names, new_hash
from streamplug.plugin_kit import HEAD_BYTES, describe_misnamed
from streamplug.transfer.ranges import open_cancellable
from streamplug.types import Bytes1D, FileInfo

_READ_BYTES = 1 << 18
# From fastest to slowest.
_HASHES_BY_SPEED = (
    "xxh3_64", "xxh3_128", "xxh128", "xxh64", "xxh32", "blake2b", "sha1", "md5", "sha256",
)  # fmt: skip


def verify_file(path: Path, file: FileInfo, algorithm: str | None, where: str) -> None:
    """Verify the size and digest of a local file against the index; errors name it `where`.

    If `algorithm` is None, the fastest digest in the index is verified, if any.

    Raises:
        CorruptShardError: If the size differs.
        HashMismatchError: If the digest differs.
        ConfigError: If the index has no such digest.
    """
    if path.stat().st_size != file.bytes:
        raise size_error(path, where, file.bytes)
    name = _choose(file, algorithm, where)
    if name is None:
        return
    digest = new_hash(name)
    with open_cancellable(path) as stream:
        while chunk := stream.read(_READ_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != file.hashes[name].lower():
        raise HashMismatchError(
            f"{where} has {name} {digest.hexdigest()}, the index says {file.hashes[name]}; "
            "its content is damaged, write or copy it again"
        )


def has_digest(data: Bytes1D, file: FileInfo) -> bool:
    """Return whether the content of a file has the fastest digest in the index; False if that has none."""
    name = _choose(file, None, file.basename)
    if name is None:
        return False
    digest = new_hash(name)
    for at in range(0, len(data), _READ_BYTES):
        digest.update(data[at : at + _READ_BYTES].data)
    return digest.hexdigest() == file.hashes[name].lower()


def size_error(path: Path, where: str, size: int) -> CorruptShardError:
    """Return the error for a file that has not the size that the index says."""
    with path.open("rb") as stream:
        found = describe_misnamed(stream.read(HEAD_BYTES), where)
    reason = f"it is {found}" if found else "it was cut short or replaced"
    return CorruptShardError(
        f"{where} has {path.stat().st_size} bytes, the index says {size}; {reason}, write or copy it again"
    )


def _choose(file: FileInfo, algorithm: str | None, where: str) -> str | None:
    if algorithm is not None:
        if algorithm not in file.hashes:
            raise ConfigError(
                f"validate_hash={algorithm!r}, but the index has for {where} only: "
                f"{', '.join(sorted(file.hashes)) or 'no hashes'}"
            )
        return algorithm
    known = [name for name in _HASHES_BY_SPEED if name in file.hashes]
    others = [name for name in file.hashes if name in hash_names()]
    return next(iter(known + others), None)
