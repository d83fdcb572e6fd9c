"""Encodings of files of video and audio."""

from __future__ import annotations

from typing import Any, ClassVar

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding, StoredRange
from streamplug.plugin_kit import wrong_type_error
from streamplug_av.audio import Audio
from streamplug_av.video import Video


def detached(data: memoryview | StoredRange) -> bytes | StoredRange:
    """Return a stored value that may be kept: a copy, unless it is read in parts."""
    return data if isinstance(data, StoredRange) else bytes(data)


class _MediaFile(Encoding):
    partial: ClassVar[bool] = True
    releases_gil = True
    lazy = True
    _kind: ClassVar[str]

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise wrong_type_error(self._kind, f"the bytes of a file of {self._kind}", value)
        data = bytes(value)
        try:
            self._check(data)
        except DecodeError as error:
            raise EncodeError(f"not a file of {self._kind} that can be read: {error}") from error
        return data

    def _check(self, data: bytes) -> None:
        """Decode the begin; raise `DecodeError` if that fails."""
        raise NotImplementedError


class VideoFile(_MediaFile):
    """``video``: a file with a video stream, of any container and codec that FFmpeg reads."""

    _kind = "video"

    def decode(self, data: memoryview | StoredRange) -> Video:
        return Video(detached(data), self.max_value_bytes)

    def _check(self, data: bytes) -> None:
        video = Video(data)
        video.clip(min(2, video.num_frames), at=0.0 if video.times[0] <= 0 else "center")
        if video.duration <= 0:
            raise DecodeError("it has no duration")


class AudioFile(_MediaFile):
    """``audio``: a file with an audio stream, of any container and codec that FFmpeg reads."""

    _kind = "audio"

    def decode(self, data: memoryview | StoredRange) -> Audio:
        return Audio(detached(data), max_value_bytes=self.max_value_bytes)

    def _check(self, data: bytes) -> None:
        audio = Audio(data)
        if audio.duration <= 0:
            raise DecodeError("it has no duration")
        audio.samples(0.0, min(audio.duration, 0.1))
