"""Samples from directories of files of video and sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from streamplug.errors import ConfigError
from streamplug.plugin_kit import SYSTEM_DIRECTORIES
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
        suffixes: Suffixes of the files, upper or lower case; None is those that are usual for `column`.

    Yields:
        The path below `root` with ``/`` as ``path``, the name of the directory as ``class``, which is empty
        for `root`, and the bytes as `column`.

    Raises:
        ConfigError: If there is no such file, or `suffixes` is no list.
    """
    if suffixes is None:
        known = {"video": VIDEO_SUFFIXES, "audio": AUDIO_SUFFIXES}
        if column not in known:
            raise ConfigError(f"column={column!r}: give suffixes=, such as ('.mp4',)")
        suffixes = known[column]
    elif isinstance(suffixes, str):
        raise ConfigError(f"suffixes={suffixes!r}: expected a list, such as [{suffixes!r}]")
    endings = [suffix.lower() for suffix in suffixes]
    base, count = Path(root), 0
    for path in sorted(base.rglob("*")):
        name = path.relative_to(base)
        is_hidden = name.parts[0] in SYSTEM_DIRECTORIES or any(
            p.startswith(".") for p in name.parts
        )
        if path.suffix.lower() in endings and not is_hidden and path.is_file():
            count += 1
            class_ = "" if name.parent == Path() else name.parent.name
            yield {"path": name.as_posix(), "class": class_, column: path.read_bytes()}
    if not count:
        raise ConfigError(f"{base}: no files that end with {', '.join(suffixes)}")
