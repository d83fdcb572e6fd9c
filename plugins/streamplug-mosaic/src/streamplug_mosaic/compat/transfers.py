"""`CloudUploader` and `CloudDownloader`: copies of single files to and from any storage."""

from __future__ import annotations

from functools import partial
from os.path import samestat
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamplug.errors import ConfigError, OutputExistsError, UnknownNameError
from streamplug.interfaces import Storage, public_urls
from streamplug.plugin import is_url, local_path, open_storage
from streamplug.transfer import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage, call_with_retries

if TYPE_CHECKING:
    from typing_extensions import Self


class CloudUploader:
    """Uploads files of a local directory.

    Args:
        out: A local path, a URL, or a pair of both.
        keep_local: Whether to keep local files after the upload.
        progress_bar: Must be False: uploads of single files have no progress bar.
        retry: Retries of a failed upload.
        exist_ok: Whether the local directory may have files.

    Attributes:
        local: The local directory; a temporary one if `out` is a URL.
        remote: URL or path of the uploads; None without.
        keep_local: Whether to keep local files after the upload.
        progress_bar: False.
        retry: Retries of a failed upload.

    Raises:
        ConfigError: If `out` is invalid.
        OutputExistsError: If the local directory has files, and `exist_ok` is False.
    """

    def __init__(
        self,
        out: str | tuple[str, str],
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
    ) -> None:
        places = (out,) if isinstance(out, str) else tuple(out)
        if len(places) != (1 if isinstance(out, str) else 2):
            raise ConfigError(
                f"Invalid `out` argument {public_urls(out)!r}: expected a path, a URL, or a pair "
                "(local, remote)"
            )
        if progress_bar:
            raise ConfigError("progress_bar=True: uploads of single files have no progress bar")
        self.keep_local, self.progress_bar, self.retry = keep_local, progress_bar, retry
        self._storage = _open_storage(places[-1])
        self.remote = places[-1] if len(places) > 1 or is_url(places[-1]) else None
        self.local = mkdtemp() if is_url(places[0]) else places[0]
        folder = Path(self.local)
        if not exist_ok and folder.exists() and any(folder.iterdir()):
            raise OutputExistsError(
                f"Directory is not empty: {folder}; choose another, or pass exist_ok=True"
            )
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def get(
        cls,
        out: str | tuple[str, str],
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
    ) -> Self:
        """Return an uploader; see the class for the arguments."""
        return cls(out, keep_local, progress_bar, retry, exist_ok)

    def upload_file(self, filename: str) -> None:
        """Upload a file of the local directory, if there is a remote.

        Args:
            filename: Its path relative to the directory.

        Raises:
            StorageError: If it cannot be uploaded.
        """
        if self.remote is not None:
            path = Path(self.local, filename)
            before = path.stat() if path.exists() else None
            call_with_retries(
                partial(self._storage.upload, path, filename), self.retry, option="retry"
            )
            # Otherwise, both locations are the same, and the upload replaced the file by itself.
            if before is not None and samestat(before, path.stat()):
                self.clear_local(str(path))

    def list_objects(self, prefix: str | None = None) -> list[str]:
        """Return the sorted files at the destination.

        Args:
            prefix: Beginning of their paths below the destination; None for all.

        Returns:
            Their paths: below the bucket if the remote is a URL, or else below the local directory.
        """
        if self.remote is None or local_path(self.remote) is not None:
            storage, root = _open_storage(self.local), self.local
        else:
            storage, root = self._storage, urlsplit(self.remote).path.strip("/")
        return [str(Path(root, info.key)) for info in storage.list(prefix or "")]

    def clear_local(self, local: str) -> None:
        """Remove a local file, unless local files are kept."""
        if not self.keep_local:
            Path(local).unlink(missing_ok=True)


class CloudDownloader:
    """Downloads single files."""

    @classmethod
    def get(cls, remote_dir: str | None = None) -> Self:
        """Return a downloader.

        Args:
            remote_dir: A location to download from; None for any.

        Raises:
            ConfigError: If no plugin provides its storage.
        """
        if remote_dir is not None:
            _open_storage(remote_dir)
        return cls()

    @classmethod
    def direct_download(
        cls, remote: str | None, local: str, timeout: float = DOWNLOAD_TIMEOUT_SECONDS
    ) -> None:
        """Download a file; see `download`."""
        cls().download(remote, local, timeout)

    def download(
        self, remote: str | None, local: str, timeout: float = DOWNLOAD_TIMEOUT_SECONDS
    ) -> None:
        """Download a file, unless the local one exists.

        Args:
            remote: URL or path of the file.
            local: Path of the copy; its directory is created.
            timeout: Stall timeout in seconds.

        Raises:
            ConfigError: If there is neither `remote` nor the local file.
            StorageError: If it cannot be downloaded.
        """
        path = Path(local)
        if path.exists():
            return
        if not remote:
            raise ConfigError(f"In the absence of {local}, the path to its remote must be provided")
        folder, _, name = remote.rpartition("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        TimeoutStorage(_open_storage(folder or "."), timeout).download(name, path)

    def clean_up(self) -> None:
        """Do nothing: `download` leaves no connection of its own."""


def _open_storage(location: str) -> Storage:
    if not isinstance(location, str):
        raise ConfigError(f"Invalid Cloud provider prefix: {location!r} is no path or URL")
    try:
        return open_storage(location)
    except UnknownNameError as error:
        raise ConfigError(f"Invalid Cloud provider prefix: {error}") from error
