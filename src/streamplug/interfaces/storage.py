"""Storages of files."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamplug.errors import ConfigError, NotFound, ObjectReplaced, StorageError
from streamplug.types import Buffer, ObjectInfo

# A colon that no port follows begins a password, to the last @ where it has a slash; ARNs have colons, too.
_SLASHED_USERINFO = r"(?<=://)(?!arn:)[^/@:\[\]]*:(?![0-9]{1,5}/)[^/@]*/.*"
_SLASHED_PASSWORD = re.compile(rf"[a-z0-9]://{_SLASHED_USERINFO}@", re.IGNORECASE)
# To the last @ before a slash: HTTP and SFTP clients accept "#" and "?" in passwords. A scheme begins where
# its characters do: texts that are no URLs may be long.
_USERINFO = re.compile(
    rf"(?<![a-z0-9+.-])([a-z0-9+.-]+)(://?|(?<=http):/+|(?<=https):/+)({_SLASHED_USERINFO}|[^/]*)@",
    re.IGNORECASE,
)
_HTTP = re.compile(r"https?:/", re.IGNORECASE)
_BEFORE_ACCOUNT = {"abfs", "abfss", "adl", "az", "azure", "azure-dl", "oci", "wasb", "wasbs"}
_SLASHES = re.compile(r"(?<![:/])/+$")
_QUERY = re.compile(r"\?.*", re.DOTALL)


def public_url(url: str) -> str:
    """Return a URL without user name, password and query, safe for logs and errors.

    >>> public_url("https://me:secret@host/set?token=1")
    'https://host/set'
    """
    before, at, rest = url.rpartition("@")
    if (
        at
    ):  # where the pattern ends at the latest: in a long text it would look for it again and again
        url = _USERINFO.sub(_without_user, before + at) + rest
    return _QUERY.sub("", url) if "://" in url or _HTTP.match(url) else url


def public_urls(locations: object) -> object:
    """Return what was passed as a location, or as several, without credentials, for errors."""
    if isinstance(locations, (list, tuple)):
        public = [public_urls(location) for location in locations]
        return public if isinstance(locations, list) else tuple(public)
    return public_url(locations) if isinstance(locations, str) else locations


def _without_user(match: re.Match[str]) -> str:
    scheme, slashes, user = match.groups()
    if scheme.lower() == "github":  # the owner and the name of a repository
        return match[0]
    # In container@account and bucket@namespace of some clouds, this is not a user name; after one slash,
    # as in dbfs:/me@example.com, it may be part of a path.
    is_account = scheme.lower() in _BEFORE_ACCOUNT
    is_path = slashes == ":/" and not _HTTP.match(match[0])
    is_inside_path = slashes == ":/" and match.start() > 0
    if is_inside_path or ((is_account or is_path) and ":" not in user):
        return match[0]
    return f"{scheme}{slashes}"


def replaced_error(url: str) -> ObjectReplaced:
    """Return the error for an object of which parts are of another version than the parts before."""
    return ObjectReplaced(f"{url}: it was replaced while it was read; it may be tried again")


def _size_and_version(info: ObjectInfo) -> str:
    return f"{info.size} {info.version}" if info.version else ""


class Storage(ABC):
    """The files below one URL, such as ``s3://bucket/prefix``.

    Keys are paths relative to that URL, separated by ``/`` and without ``..``; all other characters, such
    as ``%``, ``#`` and ``?``, are literal. Every error is a `NotFound`, `AccessDenied`, `Transient` or
    other `StorageError` that names the URL of the object. The object ``train/index.json`` of a location is
    the object ``index.json`` of the location with ``/train`` appended, which splits and parts need. Instances
    are thread-safe, survive fork, and pickle. Neither repr nor errors contain credentials.

    Attributes:
        api_version: Version of the interface that a subclass implements.
        url: The location, without credentials.
    """

    api_version: ClassVar[int] = 1

    def __init__(self, url: str, **options: Any) -> None:
        """Store location and options; nothing is opened before the first operation.

        Args:
            url: URL or path of the location.
            **options: Options of the storage, as in a data set's ``storage_options``.

        Raises:
            ConfigError: If a password in the URL has a slash.
        """
        if _SLASHED_PASSWORD.search(url):
            raise ConfigError(
                f"{public_url(url)!r}: the password before the host has a slash; write it as %2F, or "
                "pass it in storage_options="
            )
        self.url = _SLASHES.sub("", public_url(url))
        self._location = url
        self._options = options

    @classmethod
    def supports_scheme(cls, scheme: str) -> bool:  # noqa: ARG003 - for subclasses
        """Return whether the storage opens URLs of a scheme that no storage is named by.

        Only the storage that is named ``*`` is asked.
        """
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def endpoint(self) -> str:
        """URL of the server, without credentials, if options or the environment name it; else empty.

        Locations of the same `url` at two endpoints are two.
        """
        return ""

    def url_of(self, key: str) -> str:
        """Return the URL of an object, without credentials."""
        return f"{self.url}/{key}" if key else self.url

    def check_key(self, key: str) -> None:
        """Check that a key is below the location.

        Raises:
            StorageError: If it is not.
        """
        if key.startswith("/") or ".." in key.split("/"):
            raise StorageError(f"{self.url}: key {key!r} leads out of the location")

    @abstractmethod
    def read(self, key: str) -> bytes:
        """Return a whole object.

        Raises:
            StorageError: `NotFound` if it does not exist; see the class for others.
        """

    @abstractmethod
    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of an object, fewer only at its end.

        Raises:
            StorageError: `NotFound` if it does not exist; see the class for others.
        """

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """Return several ``(start, stop)`` ranges of an object, concurrently where possible."""
        return [self.read_range(key, start, stop) for start, stop in ranges]

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        """Return several ranges of one version of an object, and that version.

        The default compares what `stat` returns before and after, which are two requests more. Override it if
        responses to range requests tell the version.

        Args:
            key: The object.
            ranges: As for `read_ranges`.
            version: What an earlier call returned, to read more of that version; empty for any.

        Returns:
            The ranges, and the version, which is opaque; no ranges and an empty version if the storage cannot
            tell versions of this object.

        Raises:
            ObjectReplaced: If another version of the object was found.
        """
        version = version or _size_and_version(self.stat(key))
        if not version:
            return [], ""
        parts = self.read_ranges(key, ranges)
        if _size_and_version(self.stat(key)) != version:
            raise replaced_error(self.url_of(key))
        return parts, version

    @property
    def supports_read_many(self) -> bool:
        """Whether `read_many` is concurrent on one thread, as with clients that have an event loop."""
        return False

    @property
    def parts_per_call(self) -> int:
        """Number of samples that one `read_many` reads; each waits for all, so few if these are requests."""
        return 8

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        """Return non-empty parts ``(key, start, stop)`` of several objects.

        A part that cannot be read is replaced by its error. The default reads the objects one by one.
        """
        results: dict[int, Buffer | StorageError] = {}
        for key in dict.fromkeys(key for key, _, _ in parts):
            places = [place for place, part in enumerate(parts) if part[0] == key]
            ranges = [parts[place][1:] for place in places]
            try:
                results.update(zip(places, self.read_ranges(key, ranges)))
            except StorageError as error:
                results.update(dict.fromkeys(places, error))
        return [results[place] for place in range(len(parts))]

    def serves_ranges(self, key: str) -> bool:
        """Return whether a range request of an object transfers that range alone; may ask the server."""
        return True

    @abstractmethod
    def download(self, key: str, path: Path) -> None:
        """Copy an object to a local file in an existing directory; a failure may leave a partial file."""

    @abstractmethod
    def write(self, key: str, data: Buffer) -> None:
        """Create or replace an object atomically."""

    def create(self, key: str, data: Buffer) -> None:
        """Create an object atomically, unless it exists; of concurrent calls, one succeeds.

        Raises:
            AlreadyExists: If the object exists.
            StorageError: If the storage cannot do this, as in the default.
        """
        raise StorageError(
            f"{self.url_of(key)}: {type(self).__name__} cannot create a file only if it does not exist, "
            "which concurrent commits need"
        )

    @abstractmethod
    def upload(self, path: Path, key: str) -> None:
        """Create or replace an object atomically with the content of a local file."""

    @abstractmethod
    def stat(self, key: str) -> ObjectInfo:
        """Return the metadata of an object.

        Raises:
            StorageError: `NotFound` if it does not exist.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose key starts with `prefix`, at any depth, sorted by key."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object, if it exists."""

    def exists(self, key: str) -> bool:
        """Return whether an object exists."""
        try:
            self.stat(key)
        except NotFound:
            return False
        return True

    def close(self) -> None:  # noqa: B027 - optional
        """Close connections; the next operation opens new ones. May be called twice."""
