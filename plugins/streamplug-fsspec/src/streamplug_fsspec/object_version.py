"""Parts of an object, checked to be of one version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamplug.interfaces import replaced_error
from streamplug.types import Buffer
from streamplug_fsspec.error_mapping import status_of


def one_version(
    parts: Sequence[tuple[Buffer, str | None]], version: str, url: str
) -> tuple[list[Buffer], str]:
    """Return what `Storage.read_version` does, if these are of one version.

    Args:
        parts: Bytes and version of each part. The version is empty if the response does not tell it, and None
            if there is none, as for a range beyond the end.
        version: The version that they must be of; empty for any.
        url: URL of the object, for the error.

    Raises:
        ObjectReplaced: If they are not.
    """
    versions = {found for _, found in parts if found is not None}
    if version:
        versions.add(version)
    if "" in versions or not versions:
        return [], ""
    if len(versions) > 1:
        raise replaced_error(url)
    return [part for part, _ in parts], versions.pop()


@contextmanager
def conditional_reads(url: str) -> Iterator[None]:
    """Raise `ObjectReplaced` for a client's error with HTTP status 412, which answers an If-Match."""
    try:
        yield
    except Exception as error:
        if status_of(error) != 412:
            raise
        raise replaced_error(url) from None
