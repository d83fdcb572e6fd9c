"""Sound of which parts are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import ceil, gcd
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from streamplug.config import whole_number
from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import MAX_VALUE_BYTES, StoredRange
from streamplug.plugin_kit import large_value_error
from streamplug.types import Int64
from streamplug_av.clip_options import check_at, check_positive, is_number
from streamplug_av.container import (
    DISCARDED_FLAG,
    decode_errors,
    edits_end,
    is_mov,
    open_container,
    select_stream,
    sound_begin,
    start_seconds,
    stores_duration,
)
from streamplug_av.media_file import MediaFile
from streamplug_av.movie_index import read_edits
from streamplug_av.png import waveform_png
from streamplug_av.timeline import merge_ranges
from streamplug_av.value_file import ValueFile

Samples = NDArray[np.float32]
"""Samples between -1 and 1: float32, shape ``[channels, samples]``."""

_EXACT = {"mov", "flac"}
"""Containers in which a sample is found by its time; others are decoded from the begin."""
_EXACT_PCM = {"wav", "w64", "aiff"}
"""Those in which it is if each sample takes as many bytes as the next."""

_LOSSLESS = ("pcm_", "flac", "alac")
_PREROLL_SECONDS = 0.25  # decoders of lossy codecs need the packets before a sample
_UNDECODABLE = "the sound cannot be decoded; the file is damaged"
_MARGIN = 64  # samples, at the lower rate, around a window that is resampled, for the filter
_TOLERANCE_SECONDS = 0.1  # codecs pad the end
_MAX_PLANES = 8  # AV_NUM_DATA_POINTERS of FFmpeg
_PARTS_PER_CHECK = (
    4  # divisor of the largest value that gives what is decoded at once to find damage
)
_START_SECONDS = 1e-6  # to which FFmpeg rounds the begin of a file
_MAX_JITTER_SECONDS = 5e-3  # of the times of packets without a gap, which containers round


class Audio(MediaFile):
    """Sound that is opened on first use, in a file of sound or of video.

    Times are in seconds from the begin of the file. Not thread-safe. Pickles with its bytes, or with the
    place from which they are read.

    Attributes:
        file: The bytes of the file.
        max_value_bytes: Maximum bytes of the samples of one call.
    """

    _kind = "audio"

    def __init__(
        self,
        stored: bytes | memoryview | StoredRange,
        file: ValueFile | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        """Take the bytes of a file, or the place from which they are read; `file` has fetched some of it."""
        super().__init__(stored, max_value_bytes)
        if file is not None and file.is_far:
            self.file.copy_blocks(file)

    def _describe(self) -> str:
        channels = "1 channel" if self.channels == 1 else f"{self.channels} channels"
        return f"{self.duration:.2f} s, {self.rate:,} Hz, {channels}"

    def _repr_png_(self) -> bytes:
        """Return the waveform of at most a minute, as notebooks and reports show it."""
        return waveform_png(self.samples(0, max(min(self.duration, 60.0), 1e-3)))

    # -- what it is -------------------------------------------------------------------

    @property
    def rate(self) -> int:
        """Samples in a second; DecodeError if the file says 0."""
        rate = int(self._stream.codec_context.sample_rate)
        if rate <= 0:
            raise DecodeError(f"a rate of {rate} Hz; the file is damaged")
        return rate

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self._stream.codec_context.layout.channels)

    @cached_property
    def duration(self) -> float:
        """Seconds until the end of the last sample, according to the container.

        Files that do not say it, such as ADTS, are read as a whole for it.
        """
        container, stream = self._container, self._stream
        if not stores_duration(container, self.file):
            return self._count_seconds()
        if not stream.duration:
            return float(container.duration / av.time_base)
        edits = read_edits(self.file, stream.id) if is_mov(container) else []
        skipped = edits[0].media_time * stream.time_base if edits else 0
        is_cut = len(edits) > 1 or skipped > _TOLERANCE_SECONDS or any(edit.begin for edit in edits)
        # Of these, FFmpeg takes the minimum of what is shown, with its delay, and all of the media.
        if is_cut and edits[-1].duration:
            with open_container(self.file, use_edits=False) as media:
                end = edits_end(edits, media.streams[stream.index])
            return float(end * stream.time_base) - start_seconds(container)
        begin = sound_begin(container, stream) - start_seconds(container)
        late = begin if begin > _START_SECONDS else 0.0
        return float(stream.duration * stream.time_base) + late

    def _count_seconds(self) -> float:
        """Return the end of the last packet in seconds."""
        # In a container of its own: the position of the other one depends on what was read.
        with (
            open_container(self.file) as container,
            decode_errors("cannot read the times of the sound"),
        ):
            stream, end = select_stream(container, self._kind), 0
            for packet in container.demux(stream):
                if packet.size:
                    end = (end if packet.pts is None else packet.pts) + (packet.duration or 0)
            return float(end * stream.time_base) - start_seconds(container)

    # -- samples ----------------------------------------------------------------------

    def samples(
        self,
        start: float = 0.0,
        stop: float | None = None,
        rate: int | None = None,
        channels: int | None = None,
    ) -> Samples:
        """Return the samples from one time to another, with zeros before the begin and after the end.

        Args:
            start: Seconds.
            stop: Seconds; None is the end.
            rate: Samples in a second to which it is resampled; None is that of the file.
            channels: 1 for the mean of all channels, 2 for stereo; None leaves them.

        Returns:
            float32, shape ``[channels, round((stop - start) * rate)]``.

        Raises:
            ConfigError: If an argument is invalid.
            DecodeError: If the file is damaged; the message says at what time.
        """
        check_sound(rate, channels)
        stop = self.duration if stop is None else stop
        if not is_number(start) or not is_number(stop) or stop < start:
            raise ConfigError(f"start={start!r}, stop={stop!r}: expected two times in order")
        seconds = stop - start
        new_rate = int(rate or self.rate)
        margin = 0 if new_rate == self.rate else _margin(self.rate, new_rate)
        num_samples = seconds * max(self.rate, new_rate) + 2 * margin
        if num_samples * self.channels * 4 > self.max_value_bytes:
            what = f"{seconds:.3f} s of sound at {self.rate} Hz"
            raise large_value_error(what, self.max_value_bytes)
        first, count = round(start * self.rate), _count_samples(seconds, self.rate)
        window = _mixed(self._decoded(first - margin, first + count + margin), channels)
        if new_rate == self.rate:
            return window
        return _resampled(
            window,
            self.rate,
            new_rate,
            margin * new_rate // self.rate,
            _count_samples(seconds, new_rate),
        )

    def window(
        self,
        seconds: float,
        rate: int | None = None,
        at: float | str = "center",
        channels: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Samples:
        """Return a window of the sound, with zeros after its end; other arguments are those of `samples`.

        Args:
            seconds: Length of the window.
            rate: As for `samples`.
            at: ``"center"``, ``"random"``, or the time at which it begins in seconds.
            channels: As for `samples`.
            rng: Generator for ``at="random"``.

        Raises:
            ConfigError: If an argument is invalid.
            DecodeError: If the file is damaged, or ends before `at`.
        """
        check_at(at)
        check_positive(seconds=seconds)
        latest = max(self.duration - seconds, 0.0)
        if at == "random":
            if rng is None:
                raise ConfigError("at='random' needs rng=, the generator of a transform")
            start = float(rng.random()) * latest
        else:
            start = latest / 2 if at == "center" else float(at)
        if start > self.duration:
            raise DecodeError(
                f"there is no window at={at!r}: the sound ends at {self.duration:.3f} s"
            )
        return self.samples(start, start + seconds, rate, channels)

    def decode_whole(self) -> None:
        seconds = self.max_value_bytes / _PARTS_PER_CHECK / (4 * self.rate * self.channels)
        for number in range(ceil(self.duration / seconds)):
            start = number * seconds
            self.samples(start, min(start + seconds, self.duration))

    def _decoded(self, first: int, stop: int) -> Samples:
        """Return samples at the rate of the file, zeros outside of it."""
        out = np.zeros((self.channels, stop - first), np.float32)
        end, missing, tolerance = 0, max(first, 0), _TOLERANCE_SECONDS * self.rate
        if stop > max(first, 0):
            with decode_errors(f"at {max(first, 0) / self.rate:.3f} s"):
                for at, part in self._parts(max(first, 0), stop):
                    if at > missing + tolerance and not self._may_have_gaps:
                        raise DecodeError(
                            f"at {missing / self.rate:.3f} s: {_UNDECODABLE}, or has a gap there"
                        )
                    end = at + part.shape[1]
                    missing = max(missing, end)
                    low, high = max(at, first), min(end, stop)
                    if low < high:
                        out[:, low - first : high - first] = part[:, low - at : high - at]
        # After the end, some files have no packet to seek to.
        if not self._is_exact or first >= min(stop, self.duration * self.rate):
            return out
        expected = min(stop / self.rate, self.duration) - _TOLERANCE_SECONDS
        if end / self.rate < expected and not self._is_gap(end, stop):
            raise DecodeError(
                f"at {max(end, first) / self.rate:.3f} s: {_UNDECODABLE}, or ends before its "
                f"{self.duration:.3f} s"
            )
        return out

    def _is_gap(self, first: int, stop: int) -> bool:
        """Return whether the index has packets after some samples, but none with them."""
        if not self._may_have_gaps:
            return False
        tick, origin = self._stream.time_base, start_seconds(self._container)
        # The index of a file of fragments has grown since it was first read.
        entries = [e for e in self._stream.index_entries if not e.flags & DISCARDED_FLAG]
        begins = np.array([float(entry.timestamp * tick) for entry in entries]) - origin
        are_after = begins > stop / self.rate
        return bool(are_after.any() and (are_after | (begins < (first - 1) / self.rate)).all())

    @property
    def _may_have_gaps(self) -> bool:
        """Whether the file has times, and an index that does not only have the packets that were read."""
        names = set(self._container.format.name.split(","))
        return not names & (_EXACT | _EXACT_PCM) or "mov" in names

    @property
    def _is_exact(self) -> bool:
        names = set(self._container.format.name.split(","))
        exact = _EXACT | _EXACT_PCM if self.codec.startswith("pcm_") else _EXACT
        return bool(names & exact) and self._stream.time_base * self.rate <= 1

    def _parts(self, first: int, stop: int) -> Iterator[tuple[int, Samples]]:
        """Yield decoded samples that cover a window, each with the number of its first sample."""
        if not self._is_exact:
            # After seeking, some decoders would not skip what they skip at the begin.
            self._reopen()
        stream, rate = self._stream, self.rate
        preroll = 0.0 if self.codec.startswith(_LOSSLESS) else _PREROLL_SECONDS
        origin = start_seconds(self._container)
        begin = int((first / rate - preroll + origin) / stream.time_base)
        last = (stop / rate + origin) / float(stream.time_base)
        if self.file.is_far:
            self.file.fetch(self._byte_ranges(begin, last))
        if self._is_exact:
            self._seek(begin)
            stream = self._stream
        convert: av.AudioResampler | None = None
        jitter = rate * max(_MAX_JITTER_SECONDS, 2 * float(stream.time_base))
        at: int | None = None
        for frame in self._frames(last):
            if frame.pts is not None:
                stored = round((float(frame.pts * stream.time_base) - origin) * rate)
                if at is None or self._is_exact or abs(stored - at) > jitter:
                    at = stored
            at = 0 if at is None else at
            if convert is None:
                # PyAV crashes on frames with all planes that FFmpeg has room for, or more.
                is_planar = len(frame.layout.channels) < _MAX_PLANES
                convert = av.AudioResampler(format="fltp" if is_planar else "flt")
            for converted in convert.resample(frame):
                samples = converted.to_ndarray().astype(np.float32, copy=False)
                if not is_planar:
                    samples = samples.reshape(converted.samples, -1).T
                yield at, samples
                at += samples.shape[1]

    def _seek(self, begin: int) -> None:
        """Go to the packet of a time in ticks, or one before it."""
        # The first packets of some codecs come before the begin.
        earliest = self._entries[0, 0] if len(self._entries) else self._stream.start_time or 0
        try:
            self._container.seek(max(begin, int(earliest)), stream=self._stream)
        except av.FFmpegError:  # as near the end of some FLAC files
            self._reopen()

    def _frames(self, last: float) -> Iterator[Any]:
        codec = self._stream.codec_context
        for packet in self._container.demux(self._stream):
            if not packet.size or (packet.pts is not None and packet.pts > last):
                break
            yield from codec.decode(packet)
        yield from codec.decode(None)

    @cached_property
    def _entries(self) -> Int64:
        """Time, start and size of each packet in the container's index, shape ``[n, 3]``."""
        entries = [(e.timestamp, e.pos, e.size) for e in self._stream.index_entries]
        return np.array(entries, np.int64).reshape(-1, 3)

    def _byte_ranges(self, first: int, last: float) -> list[tuple[int, int]]:
        """Return the bytes of the packets of a span of time, if the index has them all."""
        entries = self._entries
        if not self._is_exact or len(entries) != self._stream.frames:
            return []
        begin = max(int(np.searchsorted(entries[:, 0], first, side="right")) - 1, 0)
        some = entries[begin : int(np.searchsorted(entries[:, 0], last, side="right"))]
        return merge_ranges(np.stack([some[:, 1], some[:, 1] + some[:, 2]], axis=1))


def _count_samples(seconds: float, rate: int) -> int:
    """Return the number of samples, the same wherever an interval of this length begins."""
    return round(round(seconds * rate, 3))  # half a sample must not depend on rounding errors


def _mixed(samples: Samples, channels: int | None) -> Samples:
    if channels is None or channels == len(samples):
        return samples
    mono = samples.mean(axis=0, keepdims=True, dtype=np.float32)
    return mono if channels == 1 else np.repeat(mono, channels, axis=0)


def _margin(rate: int, new_rate: int) -> int:
    """Return the samples around a window, which are a whole number of samples at the new rate, too."""
    step = rate // gcd(rate, new_rate)
    return ceil(_MARGIN * max(rate / new_rate, 1) / step) * step


def _resampled(samples: Samples, rate: int, new_rate: int, offset: int, count: int) -> Samples:
    """Resample a window that has a margin on both sides, and return `count` samples from `offset` on."""
    parts = []
    for channel in samples:  # one by one: FFmpeg has no layout for some numbers of channels
        convert = av.AudioResampler(format="fltp", layout="mono", rate=new_rate)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(channel[None]), "fltp", "mono")
        frame.sample_rate, frame.pts = rate, None
        converted = [*convert.resample(frame), *convert.resample(None)]
        parts.append(np.concatenate([part.to_ndarray()[0] for part in converted]))
    out = np.zeros((len(samples), count), np.float32)
    cut = np.stack(parts)[:, offset : offset + count]
    out[:, : cut.shape[1]] = cut
    return out


def check_window(seconds: Any, rate: Any, channels: Any) -> None:
    """Raise `ConfigError` unless these are valid arguments of `Audio.window`."""
    check_positive(seconds=seconds)
    check_sound(rate, channels)


def check_sound(rate: Any, channels: Any) -> None:
    """Raise `ConfigError` unless these are valid arguments of `Audio.samples`."""
    whole_number("rate", rate, 1)
    if channels not in (None, 1, 2):
        raise ConfigError(f"channels={channels!r}: expected 1, 2 or None")
