"""Transforms that take random clips and windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, DecodeError
from streamplug.run import name_value
from streamplug.types import Sample
from streamplug_av.audio import Audio, check_sound, check_window
from streamplug_av.clip_options import ClipOptions, checked_size
from streamplug_av.video import Video


@dataclass(frozen=True)
class RandomClips:
    """A transform that replaces the video of a sample by a random clip of it, the same after any resume.

    Pass it as `transform` to a loader, or call it with a sample and its generator.

    Attributes:
        column: Column of videos.
        frames: Frames of a clip. After the end of a video, its last one is repeated.
        stride: Distance of these frames in the video.
        size: Height and width to which frames are scaled; None is that of each video.
        audio: Name of a column that is added, with the sound of the same file from the first frame on, for
            as long as so many frames take at the mean rate of the video; None for no sound.
        rate: Samples in a second of this sound; None is that of each file.
        channels: 1 or 2 channels of this sound; None is those of each file.

    Raises:
        ConfigError: If an argument is invalid.
    """

    column: str
    frames: int
    stride: int = 1
    size: tuple[int, int] | None = None
    audio: str | None = None
    rate: int | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        ClipOptions(self.frames, self.stride)
        check_sound(self.rate, self.channels)
        if self.audio is None and (self.rate, self.channels) != (None, None):
            raise ConfigError(
                f"rate={self.rate}, channels={self.channels}: they are of the sound; give its column as "
                "audio="
            )
        if self.audio == self.column:
            raise ConfigError(
                f"audio={self.audio!r} is the column of the videos; give the sound another name"
            )
        object.__setattr__(self, "size", checked_size(self.size))

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """Return the sample with a clip.

        Raises:
            ConfigError: If the column is no video, or the sample has a column of the sound's name.
            DecodeError: If the video is damaged; the message names the sample and the time.
        """
        video = _value(sample, self.column, Video)
        if self.audio is not None and self.audio in sample:
            raise ConfigError(
                f"audio={self.audio!r}: the sample has a column of that name, whose value would be lost; "
                "give the sound another name"
            )
        with name_value(video, self.column, rng):
            numbers = video.clip_indices(self.frames, self.stride, "random", rng)
            changed = {**sample, self.column: video.frames(indices=numbers, size=self.size)}
            if self.audio is not None:
                if video.audio is None:
                    raise DecodeError(f"at {video.times[numbers[0]]:.3f} s: the file has no audio")
                start = float(video.times[numbers[0]])
                seconds = ((self.frames - 1) * self.stride + 1) / video.fps
                changed[self.audio] = video.audio.samples(
                    start, start + seconds, self.rate, self.channels
                )
        return changed


@dataclass(frozen=True)
class RandomWindows:
    """A transform that replaces the sound of a sample by a random window of it, the same after any resume.

    Attributes:
        column: Column of sound.
        seconds: Length of a window. After the end of the sound, there are zeros.
        rate: Samples in a second; None is that of each file.
        channels: 1 or 2 channels; None is those of each file.

    Raises:
        ConfigError: If an argument is invalid.
    """

    column: str
    seconds: float
    rate: int | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        check_window(self.seconds, self.rate, self.channels)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """Return the sample with a window; raises as `RandomClips` does."""
        audio = _value(sample, self.column, Audio)
        with name_value(audio, self.column, rng):
            window = audio.window(self.seconds, self.rate, "random", self.channels, rng)
        return {**sample, self.column: window}


def _value(sample: Sample, column: str, kind: type[Any]) -> Any:
    value = sample.get(column)
    if not isinstance(value, kind):
        raise ConfigError(
            f"column {column!r}: expected {kind.__name__}, got {type(value).__name__}; the sample has "
            f"{sorted(sample)}, and bytes need decoders={{{column!r}: {kind.__name__}Files()}}"
        )
    return value
