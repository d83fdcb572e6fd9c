"""Samples from directories of files of video and sound."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamplug.errors import ConfigError
from streamplug.plugin_kit import SYSTEM_DIRECTORIES, storage_error
from streamplug.types import Sample

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts")
AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".m4a", ".aac", ".ogg", ".opus")


def media_files(
    root: str | Path,
    column: str = "video",
    suffixes: Sequence[str] | None = None,
) -> Iterator[Sample]:
    """Yield a sample for each file of video or sound below a directory, in the order of their paths.

    As with ``format="folder"``, files and directories whose names begin with a dot are left out, and
    directories that systems make, such as ``__MACOSX``.

    Args:
        root: The directory.
        column: Column of the bytes, ``"video"`` or ``"audio"`` for the files of that kind.
        suffixes: Ends of the names, upper or lower case, such as ``.top.mp4``; None is those that are usual
            for `column`.

    Yields:
        The path below `root` with ``/`` as ``path``, the name of the directory as ``class``, which is empty
        for `root`, and the bytes as `column`.

    Raises:
        ConfigError: If there is no such file, a directory is a link, or `suffixes` is no list.
        StorageError: If a file or a directory cannot be read.
    """
    if suffixes is None:
        known = {"video": VIDEO_SUFFIXES, "audio": AUDIO_SUFFIXES}
        if column not in known:
            raise ConfigError(f"column={column!r}: give suffixes=, such as ('.mp4',)")
        suffixes = known[column]
    elif isinstance(suffixes, str):
        raise ConfigError(f"suffixes={suffixes!r}: expected a list, such as [{suffixes!r}]")
    endings = tuple(suffix.lower() for suffix in suffixes)
    base, count = Path(root), 0
    for path in sorted(_visible_files(base)):
        name = path.relative_to(base)
        # A link whose file is missing is a sample that would be lost.
        if path.name.lower().endswith(endings) and (path.is_symlink() or path.is_file()):
            count += 1
            class_ = "" if name.parent == Path() else name.parent.name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise storage_error(error, str(path)) from error
            yield {"path": name.as_posix(), "class": class_, column: data}
    if not count:
        raise ConfigError(f"{base}: no files that end with {', '.join(suffixes)}")


def _visible_files(base: Path) -> Iterator[Path]:
    """Yield the files below a directory, without those that are hidden or of systems."""

    def refuse(error: OSError) -> None:
        if base.is_dir():  # else there are no files
            raise storage_error(error, str(error.filename)) from error

    for folder, folders, files in os.walk(base, onerror=refuse):
        path = Path(folder)
        left_out = SYSTEM_DIRECTORIES if path == base else ()
        folders[:] = [n for n in folders if not n.startswith(".") and n not in left_out]
        for name in folders:
            if (path / name).is_symlink():
                raise ConfigError(
                    f"{path / name} is a link to a directory, which is not followed; put the directory "
                    "itself there"
                )
        yield from (path / n for n in files if not n.startswith(".") and n not in left_out)
