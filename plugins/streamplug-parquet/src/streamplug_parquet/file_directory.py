"""Directories of files that columns name by their paths, without their bytes."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from pathlib import Path

from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import Decoder, Encoding
from streamplug.plugin import is_url
from streamplug_parquet.values import FileStruct

_ATTRIBUTE = "file_directory"


@dataclass(frozen=True)
class FileDirectory:
    """Decodes a column of files, and reads those that have a path but no bytes from a directory.

    Paths are relative to the directory, or absolute, and cannot lead out of it, also not by links.

    Attributes:
        path: Path of the directory, on this machine.
        decoder: Decoder of the files, such as ``ImageArrays((224, 224))``.
    """

    path: str | Path
    decoder: Decoder

    def __post_init__(self) -> None:
        path = Path(self.path)
        if is_url(str(self.path)) or not path.is_dir():
            raise ConfigError(f"path={str(self.path)!r}: expected a directory on this machine")
        object.__setattr__(self, "path", path.resolve())

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return the encoding of the decoder, for a column of files."""
        if not isinstance(encoding, FileStruct):
            raise ConfigError("FileDirectory takes columns of structs of bytes and a path")
        decoding = copy(self.decoder(encoding))
        decoding.__dict__[_ATTRIBUTE] = self
        return decoding

    def read(self, path: str) -> memoryview:
        """Return the content of a file.

        Raises:
            DecodeError: If the path leads out of the directory, or there is no such file.
        """
        what = f"the path {path!r:.200} of a file without bytes"
        directory = Path(self.path)
        if is_url(path):
            raise DecodeError(f"{what} is a URL; FileDirectory reads files of {directory}")
        try:
            file = (directory / path).resolve()
            if not file.is_relative_to(directory):
                raise DecodeError(f"{what} leads out of the directory {directory}")
            if not file.is_file():
                raise DecodeError(f"{what} names no file in {directory}")
            return memoryview(file.read_bytes())
        except DecodeError:
            raise
        # The path is too long, has a null byte, or is a loop of links.
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DecodeError(f"{what} cannot be read in {directory}: {reason}") from error


def directory_of(encoding: Encoding) -> FileDirectory | None:
    """Return the directory of the files of a column without bytes, if there is one."""
    directory: FileDirectory | None = getattr(encoding, _ATTRIBUTE, None)
    return directory
