"""Decoding of columns of video and audio, also of bytes that are such files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import Encoding, GatherBuffer, StoredRange
from streamplug.plugin import resolve
from streamplug.types import ColumnValues, Int64
from streamplug_av.audio import Audio, check_window
from streamplug_av.clip_options import ClipOptions, check_not_random, checked_size
from streamplug_av.encodings import AudioFile, VideoFile, detached
from streamplug_av.video import Video


@dataclass(frozen=True)
class VideoClips:
    """Reads a column of videos as clips; see `decoders` of `streamplug.StreamingDataset`.

    A clip is a uint8 array of shape ``[frames, height, width, 3]``. With a `size`, a batch is one array;
    without, it is a list. For columns of `video`, and of `bytes` that are such files.

    Attributes:
        frames: Frames of a clip. After the end of a video, its last one is repeated.
        stride: Distance of these frames in the video.
        at: ``"center"``, or the time of the first frame in seconds.
        size: Height and width to which frames are scaled; None is that of each video.

    Raises:
        ConfigError: If an argument is invalid.
    """

    frames: int
    stride: int = 1
    at: float | str = "center"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        ClipOptions(self.frames, self.stride, self.at)
        check_not_random(self.at, "RandomClips")
        object.__setattr__(self, "size", checked_size(self.size))

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes videos to clips; raise `ConfigError` if there are none."""
        _check_kind(encoding, VideoFile, "VideoClips")
        shape = None if self.size is None else (self.frames, *self.size, 3)
        return _Parts(encoding, self._clip, shape)

    def _clip(self, data: memoryview | StoredRange, max_value_bytes: int) -> Any:
        return Video(data, max_value_bytes).clip(self.frames, self.stride, self.at, self.size)


@dataclass(frozen=True)
class AudioWindows:
    """Reads a column of sound as windows; see `decoders` of `streamplug.StreamingDataset`.

    A window is a float32 array of shape ``[channels, samples]``. With `rate` and `channels`, a batch is
    one array; without, it is a list. For columns of `audio` and `video`, and of `bytes` that are such files.

    Attributes:
        seconds: Length of a window. After the end of the sound, there are zeros.
        rate: Samples in a second; None is that of each file.
        at: ``"center"``, or the time at which a window begins in seconds.
        channels: 1 for the mean of all channels, 2 for stereo; None leaves them.

    Raises:
        ConfigError: If an argument is invalid.
    """

    seconds: float
    rate: int | None = None
    at: float | str = "center"
    channels: int | None = None

    def __post_init__(self) -> None:
        check_window(self.seconds, self.rate, self.channels)
        check_not_random(self.at, "RandomWindows")

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes sound to windows; raise `ConfigError` if there is none."""
        _check_kind(encoding, (AudioFile, VideoFile), "AudioWindows")
        shape = None
        if self.rate is not None and self.channels is not None:
            shape = (self.channels, round(self.seconds * self.rate), 4)  # 4 bytes each
        return _Parts(encoding, self._window, shape)

    def _window(self, data: memoryview | StoredRange, max_value_bytes: int) -> Any:
        audio = Audio(data, max_value_bytes=max_value_bytes)
        return audio.window(self.seconds, self.rate, self.at, self.channels)


@dataclass(frozen=True)
class VideoFiles:
    """Reads a column of `bytes` as `Video` objects, as a column of `video` is read."""

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes videos; raise `ConfigError` if there are none."""
        _check_kind(encoding, VideoFile, "VideoFiles")
        return _Parts(encoding, _video, None, lazy=True)


@dataclass(frozen=True)
class AudioFiles:
    """Reads a column of `bytes`, or the sound of one of `video`, as `Audio` objects."""

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes sound; raise `ConfigError` if there is none."""
        _check_kind(encoding, (AudioFile, VideoFile), "AudioFiles")
        return _Parts(encoding, _audio, None, lazy=True)


def _video(data: memoryview | StoredRange, max_value_bytes: int) -> Video:
    return Video(detached(data), max_value_bytes)


def _audio(data: memoryview | StoredRange, max_value_bytes: int) -> Audio:
    return Audio(detached(data), max_value_bytes=max_value_bytes)


class _Parts(Encoding):
    """Stored files that are decoded by a function of their bytes and the bound of its result."""

    partial: ClassVar[bool] = True
    releases_gil = True

    def __init__(
        self,
        stored: Encoding,
        decode: Callable[[memoryview | StoredRange, int], Any],
        shape: tuple[int, ...] | None,
        *,
        lazy: bool = False,
    ) -> None:
        """Take the function, and the shape of all arrays that it returns; None if they differ."""
        self.lazy = lazy
        self._stored, self._decode, self._stacks = stored, decode, shape is not None
        if shape is not None:
            self.decoded_bytes = prod(shape)

    def encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def decode(self, data: memoryview | StoredRange) -> Any:
        return self._decode(data, self.max_value_bytes)

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        values = super().decode_batch(buffer, starts, sizes)
        return np.stack(list(values)) if self._stacks and len(values) else values


def _check_kind(
    encoding: Encoding, kinds: type[Encoding] | tuple[type[Encoding], ...], name: str
) -> None:
    if not isinstance(encoding, kinds) and not isinstance(encoding, resolve("encoding", "bytes")):
        raise ConfigError(
            f"{name} reads columns of video or audio, or bytes, not {type(encoding).__name__}"
        )
