"""Files of Iceberg tables, read through a storage of streamplug."""

from __future__ import annotations

import re

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from streamplug.errors import ConfigError, DataError, NotFound, StorageError, Transient
from streamplug.interfaces import Storage, public_url
from streamplug.plugin import make
from streamplug.plugin_kit import parsing
from streamplug.transfer import call_with_retries

METADATA_FOLDER = "metadata/"
_HINT = f"{METADATA_FOLDER}version-hint.text"
_METADATA_NAME = re.compile(r"v?([0-9]+)(?:-[0-9a-fA-F-]+)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_VERSION_ENDINGS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_MAX_METADATA_BYTES = 1 << 28  # of a metadata file, decompressed
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}


def split_metadata_url(url: str) -> tuple[str, str | None]:
    """Return the location of a table, and the key of its metadata file if the URL names one.

    Raises:
        ConfigError: If the file is not in the folder ``metadata`` of a table.
    """
    folder, _, name = url.rpartition("/")
    if _METADATA_NAME.fullmatch(name) is None:
        return url, None
    root, _, last = folder.rpartition("/")
    if f"{last}/" != METADATA_FOLDER or not root:
        raise ConfigError(
            f"remote={public_url(url)!r:.200}: a metadata file must be in the folder "
            f"{METADATA_FOLDER} of its table"
        )
    return root, f"{METADATA_FOLDER}{name}"


class TableFiles:
    """Files below the location of a table, by the locations that its metadata has for them.

    A table that was copied elsewhere is read there: locations below its old one are below the new one.
    """

    def __init__(self, storage: Storage, retries: int) -> None:
        """Read files of `storage`, which is the table's location."""
        self._storage, self._retries = storage, retries
        self._roots = [_normalize(storage.url)]

    def find_metadata(self) -> str:
        """Return the key of the latest metadata file.

        Raises:
            NotFound: If there is none.
            ConfigError: If it is not clear which is the latest.
            DataError: If the file that names it is damaged.
        """
        try:
            data = self.read(_HINT)
        except NotFound:
            data = b""
        with parsing(self._storage.url_of(_HINT)):
            hint = data.decode().strip()
            number = int(hint) if hint.isdecimal() else None
        if number is not None:
            return self._find_version(number)
        if hint:
            return f"{METADATA_FOLDER}{hint.removesuffix('.metadata.json')}.metadata.json"
        found: dict[int, list[str]] = {}
        for info in call_with_retries(
            lambda: list(self._storage.list(METADATA_FOLDER)), self._retries
        ):
            if match := _METADATA_NAME.fullmatch(info.key.removeprefix(METADATA_FOLDER)):
                found.setdefault(int(match[1]), []).append(info.key)
        if not found:
            raise NotFound(
                f"{self._storage.url}: there is no {METADATA_FOLDER} of an Iceberg table; check remote= and "
                "split="
            )
        latest = found[max(found)]
        if len(latest) > 1:
            raise ConfigError(
                f"{self._storage.url} has several latest metadata files, {' and '.join(sorted(latest))}: "
                "pass as remote= the one that the catalog names (metadata_location of the table)"
            )
        return latest[0]

    def _find_version(self, number: int) -> str:
        """Return the key of the metadata file of a version, or of the last one that follows it.

        A commit writes its metadata file before the hint, and counts even if it stops in between.
        """
        latest = f"{METADATA_FOLDER}v{number}.metadata.json"
        while True:
            keys = [f"{METADATA_FOLDER}v{number}{ending}" for ending in _VERSION_ENDINGS]
            key = next((key for key in keys if self._exists(key)), None)
            if key is None:
                return latest
            latest, number = key, number + 1

    def _exists(self, key: str) -> bool:
        try:
            return call_with_retries(lambda: self._storage.exists(key), self._retries)
        except Transient:
            raise
        except StorageError:  # S3 denies access to what is not there without the right to list
            return False

    def read_metadata(self, key: str) -> TableMetadata:
        """Read a metadata file.

        Raises:
            DataError: If it is damaged.
        """
        data = self.read(key)
        with parsing(self._storage.url_of(key), "or its version is not supported"):
            if ".gz" in key.removeprefix(METADATA_FOLDER):
                data = make("compression", "gz").decompress(data, max_size=_MAX_METADATA_BYTES)
            metadata = TableMetadataUtil.parse_raw(data.decode())
        self._roots.append(_normalize(metadata.location))
        return metadata

    def key_of(self, location: str) -> str:
        """Return the key of a location that the table's metadata has.

        Raises:
            DataError: If it is not below the location of the table.
        """
        path = _normalize(location)
        for root in self._roots:
            if path.startswith(f"{root}/"):
                return path[len(root) + 1 :]
        raise DataError(
            f"{self._storage.url}: its file {location!r:.200} is outside of the table, which is not supported"
        )

    def read(self, key: str) -> bytes:
        """Return the content of a file by its key."""
        return call_with_retries(lambda: self._storage.read(key), self._retries)


def _normalize(location: str) -> str:
    """Return a location with the plain name of its scheme, without one if it is local."""
    scheme, separator, path = location.partition(":")
    if not separator or "/" in scheme:
        return location.rstrip("/")
    if scheme == "file":
        return f"/{path.lstrip('/')}".rstrip("/")
    return f"{_ALIASES.get(scheme, scheme)}:{path}".rstrip("/")
