"""Videos of which single frames are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import ArrayLike, NDArray

from streamplug.errors import ConfigError, DecodeError
from streamplug.plugin_kit import large_value_error
from streamplug.types import Int64
from streamplug_av.audio import Audio
from streamplug_av.clip_options import ClipOptions, checked_size
from streamplug_av.container import (
    decode_errors,
    edits_end,
    open_container,
    select_stream,
    start_seconds,
    video_edits,
)
from streamplug_av.media_file import MediaFile
from streamplug_av.movie_index import Edit
from streamplug_av.png import frame_png
from streamplug_av.timeline import (
    Timeline,
    counts_times,
    read_timeline,
    stores_times,
    unknown_times_error,
)

Frames = NDArray[np.uint8]
"""Frames in RGB: uint8, shape ``[frames, height, width, 3]``."""


_MIN_ROUNDED_TICKS = 4
"""Ticks of the shortest frame from which on times may be rounded; shorter ones are whole numbers of ticks."""
_ROUNDED_SECONDS = 1e-3
"""To which times are rounded that are stored beside videos, in milliseconds or as float32."""
_CHECKED_SIZE = (16, 16)
"""Size to which frames are scaled that are decoded to find damage only."""
_FRAMES_PER_CHECK = 1 << 14
_START_SECONDS = 1e-6  # to which FFmpeg rounds the begin of a file


class Video(MediaFile):
    """A video file that is opened on first use.

    Times are in seconds from the begin of the file. Not thread-safe. Pickles with its bytes, or with the
    place from which they are read.

    Attributes:
        file: The bytes of the file.
        max_value_bytes: Maximum bytes of the frames of one call.
    """

    _kind = "video"

    def _describe(self) -> str:
        width, height = self.size
        return f"{self.duration:.2f} s, {width} x {height}, {self.fps:.4g} fps"

    def _repr_png_(self) -> bytes:
        """Return the frame in the middle, as notebooks and reports show it."""
        [frame] = self.frames(times=[self.duration / 2])
        return frame_png(frame)

    # -- what it is -------------------------------------------------------------------

    @cached_property
    def _stream(self) -> Any:
        # Not that of the base class: it would stay in the cache, unchecked, if the check fails.
        return self._select(self._container)

    def _select(self, container: Any) -> Any:
        stream = select_stream(container, self._kind)
        width, height = stream.codec_context.width, stream.codec_context.height
        self._check_size(1, height, width)
        # A file whose frames are larger than its header says is damaged for FFmpeg.
        stream.codec_context.options = {"max_pixels": str(self.max_value_bytes // 3)}
        return stream

    def _check_size(self, frames: int, height: int, width: int) -> None:
        if frames * height * width * 3 > self.max_value_bytes:
            what = f"{frames} frames of {width} x {height} pixels"
            raise large_value_error(what, self.max_value_bytes)

    @cached_property
    def _edits(self) -> list[Edit]:
        return video_edits(self._container, self.file, self._stream)

    @cached_property
    def _source(self) -> tuple[Any, Any]:
        """The container and the stream of the packets, with the times at which frames are stored."""
        if not self._edits:
            return self._container, self._stream
        container = open_container(self.file, use_edits=False)
        return container, self._select(container)

    def _reopen(self) -> None:
        super()._reopen()
        self.__dict__.pop("_source", None)

    @cached_property
    def _timeline(self) -> Timeline:
        return self._read_timeline()

    def _read_timeline(self, *, use_index: bool = True) -> Timeline:
        try:
            with decode_errors("cannot read the times of the frames"):
                container, stream = self._source
                if not use_index:
                    container.seek(0)
                timeline = read_timeline(container, stream, self.file if use_index else None)
                if self._edits:
                    timeline = timeline.edited(self._edits)
        except DecodeError:
            self._reopen()  # else the next call would read on from here
            raise
        if not len(timeline.times):
            raise DecodeError("the video has no frames")
        return timeline

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, those of the first frame."""
        return self._stream.codec_context.width, self._stream.codec_context.height

    @property
    def fps(self) -> float:
        """Mean number of frames in a second, according to the container."""
        return float(self._stream.average_rate or self._stream.guessed_rate or 0)

    @property
    def duration(self) -> float:
        """Seconds from the begin of the first frame to the end of the last."""
        stream = self._stream
        if self._edits:
            ticks = edits_end(self._edits, self._source[1]) - self._edits[0].begin
            return float(ticks * stream.time_base)
        if stream.duration:
            return float(stream.duration * stream.time_base)
        if self._container.duration:
            return float(self._container.duration) / 1e6
        return float(self.times[-1] - self.times[0]) + (1 / self.fps if self.fps else 0.0)

    @property
    def num_frames(self) -> int:
        """Number of frames. Of other containers than MP4 and MOV, all of the file is read for it.

        Frames that are shown before the first key frame do not count: they cannot be decoded.
        """
        return len(self._timeline.times)

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """Time of each frame in seconds, shape ``[num_frames]``; see `num_frames`."""
        seconds = self._timeline.times * float(self._stream.time_base)
        return np.asarray(seconds - start_seconds(self._container), np.float64)

    @cached_property
    def audio(self) -> Audio | None:
        """The sound of the same file, with the same times; None if there is none."""
        if not self._container.streams.audio:
            return None
        audio = Audio(self.file.value, self.file, self.max_value_bytes)
        audio.place = self.place
        return audio

    # -- frames -----------------------------------------------------------------------

    def frames(
        self,
        times: ArrayLike | None = None,
        indices: ArrayLike | None = None,
        size: tuple[int, int] | None = None,
    ) -> Frames:
        """Return the frames that are shown at some times, or of some numbers, in this order.

        Args:
            times: Seconds, shape ``[n]``.
            indices: Numbers from 0, shape ``[n]``; negative ones count from the end.
            size: Height and width to which frames are scaled; None is that of the video.

        Raises:
            ConfigError: If both or none of `times` and `indices` are given, or are outside of the video.
            DecodeError: If the file is damaged; the message says at what time.
        """
        if (times is None) == (indices is None):
            raise ConfigError("frames: give either times= or indices=")
        size = checked_size(size)
        if times is not None:
            return self._decode(self.index_at(times), size)
        try:
            given = np.asarray(indices).reshape(-1)
        except ValueError:  # of lists of different lengths
            raise ConfigError(
                f"indices={indices!r:.60}: expected whole numbers, not lists"
            ) from None
        if given.size and given.dtype.kind not in "iu":
            raise ConfigError(f"indices={indices!r:.60}: expected whole numbers, not {given.dtype}")
        # Before they become int64, which large ones of uint64 do not fit.
        wrong = (given < -self.num_frames) | (given >= self.num_frames)
        if wrong.any():
            raise ConfigError(f"indices={given[wrong][0]}: the video has {self.num_frames} frames")
        return self._decode(given.astype(np.int64) % self.num_frames, size)

    def index_at(self, times: ArrayLike) -> Int64:
        """Return the numbers of the frames that are shown at some times, in seconds.

        As times are often rounded, a frame counts from 1 ms before it is shown, or from a quarter of the
        shortest frame.

        Raises:
            ConfigError: If a time is no number, before the first frame or after the end.
        """
        try:
            seconds = np.asarray(times, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise ConfigError(f"times={times!r:.60}: expected numbers of seconds") from None
        tolerance = self._tolerance()
        first = self.times[0]
        # An MP4 file counts until the last frame is decoded, and may show some long after that.
        end = max(first + self.duration, self.times[-1])
        if not stores_times(self._container) and self.fps:  # its duration is an estimate
            end = max(end, self.times[-1] + 1 / self.fps)
        wrong = ~((seconds >= first - 2 * tolerance) & (seconds <= end + 2 * tolerance))
        if wrong.any():
            raise ConfigError(
                f"times={seconds[wrong][0]:g}: frames are shown from {first:g} to {end:g} s"
            )
        found = np.searchsorted(self.times, seconds + tolerance, side="right") - 1
        return np.maximum(found, 0)

    def _tolerance(self) -> float:
        """Return the seconds by which the time of a frame may be rounded, here or in the container."""
        tick = float(self._stream.time_base)
        ticks = np.diff(self._timeline.pts).min(initial=ceil(1 / tick))
        rounded = tick / 2 if ticks >= _MIN_ROUNDED_TICKS else min(tick / 2, _START_SECONDS)
        return max(rounded, min(_ROUNDED_SECONDS, float(ticks) * tick / 4))

    def clip_indices(
        self,
        frames: int,
        stride: int = 1,
        at: float | str = "center",
        rng: np.random.Generator | None = None,
    ) -> Int64:
        """Return the numbers of the frames of a clip, shape ``[frames]``; arguments are those of `clip`."""
        options = ClipOptions(frames, stride, at)
        reach = (options.frames - 1) * options.stride + 1
        latest = max(self.num_frames - reach, 0)
        if at == "random":
            if rng is None:
                raise ConfigError("at='random' needs rng=, the generator of a transform")
            start = int(rng.integers(0, latest + 1))
        elif at == "center":
            start = latest // 2
        else:
            try:
                start = int(self.index_at(float(at))[0])
            except ConfigError as error:
                raise DecodeError(f"there is no clip at={at!r}: {error}") from error
        numbers = start + np.arange(options.frames) * options.stride
        return np.minimum(numbers, self.num_frames - 1)

    def clip(
        self,
        frames: int,
        stride: int = 1,
        at: float | str = "center",
        size: tuple[int, int] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Frames:
        """Return frames at equal distances. After the end of the video, the last one is repeated.

        Args:
            frames: Number of frames.
            stride: Each how manieth frame is taken.
            at: ``"center"``, ``"random"``, or the time of the first frame in seconds.
            size: As for `frames`.
            rng: Generator for ``at="random"``.

        Raises:
            ConfigError: If an argument is invalid.
            DecodeError: If the file is damaged, or ends before `at`.
        """
        return self._decode(self.clip_indices(frames, stride, at, rng), checked_size(size))

    def decode_whole(self) -> None:
        for first in range(0, self.num_frames, _FRAMES_PER_CHECK):
            numbers = np.arange(first, min(first + _FRAMES_PER_CHECK, self.num_frames))
            self.frames(indices=numbers, size=_CHECKED_SIZE)

    def _decode(self, numbers: Int64, size: tuple[int, int] | None) -> Frames:
        width, height = self.size  # FFmpeg changes it to that of the last decoded frame
        self._check_size(len(numbers), *(size or (height, width)))
        decoded = self._frames_at(np.unique(self._timeline.stored[numbers]), size)
        if decoded is None:  # frames are not where a constant rate would have them
            self.__dict__.pop("times", None)
            self.__dict__["_timeline"] = self._read_timeline(use_index=False)
            numbers = np.minimum(numbers, self.num_frames - 1)
            decoded = self._frames_at(np.unique(self._timeline.stored[numbers]), size)
        if decoded is None:
            raise unknown_times_error(self._container, self._stream)
        if not len(numbers):
            return np.empty((0, *(size or (height, width)), 3), np.uint8)
        if len(sizes := {frame.shape[:2] for frame in decoded.values()}) > 1:
            raise DecodeError(
                "the video has frames of several sizes, "
                f"{' and '.join(f'{wide} x {high}' for high, wide in sorted(sizes))} pixels; pass size=, to "
                "which all are scaled"
            )
        return np.stack([decoded[number] for number in self._timeline.stored[numbers].tolist()])

    def _frames_at(self, numbers: Int64, size: tuple[int, int] | None) -> dict[int, Frames] | None:
        """Decode stored frames of ascending numbers; None if none have their times, but later ones come."""
        timeline = self._timeline
        groups = timeline.groups(timeline.pts[numbers])
        # Groups that follow each other are decoded in one go.
        cuts = np.flatnonzero(np.diff(groups) > 1) + 1
        if counts_times(self._container):
            cuts = cuts[:0]
        runs = np.split(numbers, cuts) if len(numbers) else []
        if self.file.is_far:
            self.file.fetch([part for run in runs for part in self._byte_ranges(run)])
        decoded: dict[int, Frames] = {}
        for run in runs:
            if not self._decode_run(run, size, decoded):
                return None
        return decoded

    def _byte_ranges(self, run: Int64) -> list[tuple[int, int]]:
        timeline = self._timeline
        pts = timeline.pts[run]
        first = int(timeline.keys[timeline.groups(pts[:1])[0]])
        return timeline.byte_ranges(first, int(pts[-1]))

    def _decode_run(
        self, run: Int64, size: tuple[int, int] | None, decoded: dict[int, Frames]
    ) -> bool:
        wanted = dict(zip(self._timeline.pts[run].tolist(), run.tolist()))
        first, last = min(wanted), max(wanted)
        reformatter = VideoReformatter()  # one for all frames, as making it takes longest
        at = self._time_of(wanted[first])
        is_stored = stores_times(self._container)
        if not is_stored:  # whether inferred times are right shows in the frames before and after
            first = int(self._timeline.pts[max(wanted[first] - 1, 0)])
        previous: int | None = None
        with decode_errors(f"at {at:.3f} s"):
            for frame in self._iter_frames(first, last):
                if not is_stored and frame.pts is not None:
                    if previous is not None and frame.pts <= previous:
                        raise unknown_times_error(self._container, self._stream)
                    previous = frame.pts
                number = wanted.pop(frame.pts, None)
                if number is not None:
                    if frame.is_corrupt:
                        raise DecodeError(f"at {self._time_of(number):.3f} s: the frame is damaged")
                    decoded[number] = _as_array(frame, size, reformatter)
                if not wanted and is_stored:
                    return True
                if wanted and frame.pts is not None and frame.pts > last:
                    return False
        if not wanted:
            return True
        raise DecodeError(
            f"at {self._time_of(min(wanted.values())):.3f} s: the frame cannot be decoded; the file is "
            f"damaged, or ends before its {self.duration:.3f} s"
        )

    def _time_of(self, stored: int) -> float:
        """Return the first time at which a stored frame is shown, in seconds."""
        return float(self.times[np.argmax(self._timeline.stored == stored)])

    def _iter_frames(self, first: int, last: int) -> Iterator[Any]:
        """Yield frames from a key frame at or before `first`, and feed no packets after `last`.

        Of files without stored times, another one is fed, as it may be shown before.
        """
        for packet in self._packets_from(first):
            is_after = packet.dts is not None and packet.dts > last
            if is_after and stores_times(self._container):
                break
            yield from self._source[1].codec_context.decode(packet)
            if is_after:
                break
        yield from self._source[1].codec_context.decode(None)

    def _packets_from(self, pts: int) -> Iterator[Any]:
        """Yield packets from the nearest key frame that is shown at `pts` or before it."""
        second = int(1 / self._stream.time_base)
        key = int(self._timeline.keys[self._timeline.groups(np.array([pts]))[0]])
        lowest = int(self._timeline.pts[0])
        backs = (0, second, 8 * second, 64 * second, None)
        for back in backs[-1:] if counts_times(self._container) else backs:
            if back is None:  # the container cannot seek
                self._reopen()
            container, stream = self._source
            if back is not None:
                container.seek(max(key - back, lowest), stream=stream)
            packets = (packet for packet in container.demux(stream) if packet.size)
            start = next((packet for packet in packets if packet.is_keyframe), None)
            shown = None if start is None else start.dts if start.pts is None else start.pts
            if shown is not None and shown <= pts:
                break
        if start is None:
            return
        yield start
        # Frames that are shown before the key frame need others that were not decoded.
        yield from (p for p in packets if p.pts is None or shown is None or p.pts >= shown)


def _as_array(frame: Any, size: tuple[int, int] | None, reformatter: VideoReformatter) -> Frames:
    height, width = size or (frame.height, frame.width)
    rgb = reformatter.reformat(frame, width, height, "rgb24")
    return np.asarray(rgb.to_ndarray(), np.uint8)
