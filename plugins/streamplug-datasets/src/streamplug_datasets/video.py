"""Data sets of videos."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, DataError
from streamplug.plugin import open_storage
from streamplug.transfer import Patience, TimeoutStorage, call_with_retries
from streamplug_datasets.threaded_map import map_samples
from streamplug_datasets.transform import TransformedDataset

_PLACES = """
    Samples have the path of a video, ``content_path``. If both places are given, they get the video itself,
    as ``content``. `download_retry`, `download_timeout` and `download_patience` apply to videos, too.

    Args:
        extra_local: Folder for videos; those that are there are not fetched again.
        extra_remote: Path or URL of the folder that the paths lead on from.
"""


class StreamingInsideWebVid(StreamingDataset):
    """WebVid whose samples have the videos, as ``content``. It is a `streamplug.StreamingDataset`."""


class StreamingOutsideGIWebVid(TransformedDataset):  # noqa: D101 - below
    __doc__ = f"""WebVid whose videos are files, each fetched when its sample is asked for.
{_PLACES}        **kwargs: As for `streamplug.StreamingDataset`.
    """

    def __init__(
        self, *, extra_local: str | None = None, extra_remote: str | None = None, **kwargs: Any
    ) -> None:
        if (extra_local is None) != (extra_remote is None):
            raise ConfigError("give both of extra_local= and extra_remote=, or neither")
        super().__init__(**kwargs)
        self.extra_local, self.extra_remote = extra_local, extra_remote
        stream = self.streams[0]
        self._retries = stream.retries
        self._extra = (
            None
            if extra_remote is None
            else TimeoutStorage(open_storage(extra_remote), stream.timeout)
        )
        place = "" if self._extra is None else self._extra.url
        self._patience = Patience.of(place, stream.patience.seconds)

    def change(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return a sample with its video."""
        if self._extra is None:
            return sample
        # In a dict of its own: the other one stays until all that were read with it are used.
        return {**sample, "content": self._video(sample["content_path"]).read_bytes()}

    def _video(self, name: str) -> Path:
        """Return where a video is near, after fetching it if need be."""
        parts = PurePosixPath(name)
        if self._extra is None or parts.is_absolute() or ".." in parts.parts or "\\" in name:
            raise DataError(f"content_path={name!r:.200}: not a path below a folder")
        path = Path(self.extra_local or "") / parts
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as folder:
                target = Path(folder) / "video"
                fetch = partial(self._extra.download, name, target)
                call_with_retries(fetch, self._retries, patience=self._patience)
                target.replace(path)
        return path


class StreamingOutsideDTWebVid(StreamingOutsideGIWebVid):  # noqa: D101 - below
    __doc__ = f"""WebVid whose videos are files, fetched ahead of use by threads.
{_PLACES}        extra_threads: How many are fetched at once, and ahead.
        **kwargs: As for `streamplug.StreamingDataset`.
    """

    def __init__(self, *, extra_threads: int = 8, **kwargs: Any) -> None:
        if extra_threads < 1:
            raise ConfigError(f"extra_threads={extra_threads}: must be at least 1")
        super().__init__(**kwargs)
        self.extra_threads = extra_threads

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's samples of the next epoch."""
        if self._extra is None or self.one_by_one:
            yield from super().__iter__()
            return
        with closing(map_samples(self, self.change, num_threads=self.extra_threads)) as samples:
            yield from samples
