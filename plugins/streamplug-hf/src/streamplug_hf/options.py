"""Options and URLs of the Hugging Face Hub storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
_WHAT = "hf storage"

_KNOWN: OptionTypes = {
    "connect_timeout": (int, float),
    "endpoint_url": str,
    "max_concurrency": int,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "revision": str,
    "token": (str, bool),
    "xet": bool,
}
_KINDS = {"buckets", "datasets", "models", "spaces"}
_FORM = (
    "write hf://datasets/OWNER/NAME/path, hf://datasets/OWNER/NAME@REVISION/path or "
    "hf://buckets/OWNER/NAME/path"
)
# Revisions with unquoted slashes, as in the URLs of the Hub.
_REFS = re.compile(r"refs/(?:convert/[^/]+|pr/\d+)(?=/|$)")


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    check_url(_WHAT, options, "endpoint_url", "https://huggingface.co")
    check_positive(_WHAT, options, "connect_timeout", "read_timeout", "max_concurrency")


@dataclass(frozen=True)
class RepositoryPath:
    """A folder of a repository or bucket of the Hub.

    Attributes:
        kind: ``datasets``, ``models``, ``spaces`` or ``buckets``.
        repository: Owner and name.
        revision: A branch, tag or commit; None if the URL has none, as those of buckets.
        folder: Path in the repository; empty for its root.
    """

    kind: str
    repository: str
    revision: str | None
    folder: str

    @property
    def is_bucket(self) -> bool:
        """Whether it is in a bucket, which has no history."""
        return self.kind == "buckets"

    def url_of_revision(self, revision: str) -> str:
        """Return the URL of this folder in a revision."""
        place = f"{self.kind}/{self.repository}@{quote(revision, safe='')}"
        return f"hf://{place}/{self.folder}".rstrip("/")


def parse(url: str) -> RepositoryPath:
    """Parse a URL.

    Raises:
        ConfigError: If it names no repository or bucket, or a revision of a bucket.
    """
    path = url.partition("://")[2].strip("/")
    first, _, rest = path.partition("/")
    kind, path = (first, rest) if first in _KINDS else ("models", path)
    owner, _, rest = path.partition("/")
    name, slash, folder = rest.partition("/")
    name, at, revision = name.partition("@")
    if at and (special := _REFS.match(revision + slash + folder)):
        whole = revision + slash + folder
        revision, folder = special[0], whole[special.end() :]
    if not owner or not name or (at and not revision):
        raise ConfigError(f"{public_url(url)!r} names no repository; {_FORM}")
    if kind == "buckets" and at:
        raise ConfigError(f"{public_url(url)!r}: a bucket has no revisions; leave out @{revision}")
    return RepositoryPath(
        kind, f"{owner}/{name}", unquote(revision) if at else None, folder.strip("/")
    )
