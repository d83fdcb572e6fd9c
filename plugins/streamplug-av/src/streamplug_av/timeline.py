"""The frames of a video stream: their times, key frames and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from av.container import InputContainer

from streamplug.errors import DecodeError
from streamplug.types import Int64
from streamplug_av.container import is_mov
from streamplug_av.movie_index import Edit, read_delays
from streamplug_av.value_file import ValueFile

_MAX_GAP_BYTES = 16 << 10  # between packets that are fetched together
_STORED_TIMES = {"mov", "matroska", "mpegts", "flv", "nut", "wtv", "ivf"}
"""Containers that store when each frame is shown. For others, FFmpeg infers it from the order of packets."""
_COUNTED_TIMES = {"mpeg", "mpegvideo", "m4v"}
"""Containers of which few packets have a time; those of others are right only if all before are read."""
_GENERATE_TIMES_FLAG = 1  # AVFMT_FLAG_GENPTS of FFmpeg, which PyAV sets for all files
_MAX_SHOWN = 1 << 24  # frames of all parts of an edit list
_UNKNOWN_ORDER = {"h264", "hevc", "vvc"}
"""Codecs of whose packets FFmpeg does not infer when they are shown, but makes it up in their order."""


@dataclass(frozen=True)
class Timeline:
    """The stored frames of a video, and which of them are shown when.

    All times are in ticks of the stream; those of an edit list are not those at which frames are stored.

    Attributes:
        pts: Time of each stored frame, int64, shape ``[stored]``, ascending.
        keys: Time at which each group of pictures begins, ascending.
        decode_times: Time at which each packet is decoded, or empty if it is not known where packets lie.
        positions: Start and stop of each packet in the file, shape ``[packets, 2]``.
        stored: Number of the stored frame that is shown as each frame of the video, shape ``[frames]``.
        times: Time at which it is shown, ascending.
    """

    pts: Int64
    keys: Int64
    decode_times: Int64
    positions: Int64
    stored: Int64
    times: Int64

    @classmethod
    def unedited(
        cls,
        pts: Int64,
        keys: Int64,
        decode_times: Int64 | None = None,
        positions: Int64 | None = None,
    ) -> Timeline:
        """Return the frames of a video that shows them all, at the times at which they are stored."""
        if decode_times is None or positions is None:
            decode_times, positions = np.empty(0, np.int64), np.empty((0, 2), np.int64)
        return cls(pts, keys, decode_times, positions, np.arange(len(pts)), pts)

    def edited(self, edits: Sequence[Edit]) -> Timeline:
        """Return what the parts of an edit list show, the first frame of each at its begin, as FFmpeg does.

        Raises:
            DecodeError: If these are too many frames.
        """
        starts = np.array([edit.media_time for edit in edits], np.int64)
        stops = starts + np.array([edit.duration for edit in edits], np.int64)
        bounds = np.searchsorted(self.pts, np.stack([starts, stops])).T.tolist()
        if (count := sum(stop - start for start, stop in bounds)) > _MAX_SHOWN:
            raise DecodeError(
                f"the edit list of the file shows {count:,} frames, at most {_MAX_SHOWN:,} are supported; "
                "encode the file again"
            )
        parts = [np.arange(start, stop) for start, stop in bounds]
        times = [
            self.pts[part] - self.pts[part[:1]] + edit.begin for part, edit in zip(parts, edits)
        ]
        return replace(self, stored=np.concatenate(parts), times=np.concatenate(times))

    def groups(self, pts: Int64) -> Int64:
        """Return the group of pictures that each frame belongs to, from 0."""
        return np.maximum(np.searchsorted(self.keys, pts, side="right") - 1, 0)

    def byte_ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the bytes of the packets to decode from a key frame until another frame, by their times."""
        if not len(self.decode_times):
            return []
        shift = int(self.keys[0] - self.decode_times[0])
        some = (self.decode_times >= first - shift) & (self.decode_times <= last)
        return merge_ranges(self.positions[some])


def merge_ranges(ranges: Int64) -> list[tuple[int, int]]:
    """Return byte ranges, shape ``[n, 2]``, in order, with those merged that are near to each other."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(map(tuple, ranges.tolist())):
        if merged and start - merged[-1][1] <= _MAX_GAP_BYTES:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def stores_times(container: InputContainer) -> bool:
    """Return whether a container stores when each frame is shown."""
    return not _STORED_TIMES.isdisjoint(container.format.name.split(","))


def counts_times(container: InputContainer) -> bool:
    """Return whether the times of packets are right only if the file is read from its begin."""
    return container.format.name in _COUNTED_TIMES


def unknown_times_error(container: InputContainer, stream: Any) -> DecodeError:
    """Return the error of a video whose container does not say in which order its frames are shown."""
    return DecodeError(
        f"the file, of the format {container.format.name}, does not say when the frames of its "
        f"{stream.codec_context.name} stream are shown; encode it again, for example to MP4"
    )


def read_timeline(container: InputContainer, stream: Any, index: ValueFile | None) -> Timeline:
    """Return the frames of a stream.

    Args:
        container: The container.
        stream: A stream of video in it.
        index: The file, to read the index of MP4 and MOV, or None to read all packets instead.

    Raises:
        DecodeError: If the file does not say when they are shown.
    """
    if index is not None and is_mov(container):
        indexed = _from_index(stream, read_delays(index, stream.id))
        if indexed is not None:
            return indexed
    codec = stream.codec_context
    if codec.has_b_frames and codec.name in _UNKNOWN_ORDER:
        if not stores_times(container):
            raise unknown_times_error(container, stream)
        # Else FFmpeg hides that a file, even of such a container, has only the order of decoding.
        container.flags &= ~_GENERATE_TIMES_FLAG
    pts, keys = [], []
    for packet in container.demux(stream):
        if not packet.size or packet.is_discard:
            continue
        if packet.pts is None:
            raise unknown_times_error(container, stream)
        pts.append(packet.pts)
        if packet.is_keyframe:
            keys.append(packet.pts)
    times = np.unique(np.array(pts, np.int64))
    if len(times) < len(pts) and not stores_times(container):
        raise unknown_times_error(container, stream)
    starts = np.unique(np.array(keys or pts[:1], np.int64))
    # A file that was cut may begin with frames that need others before its first key frame.
    times = times[times >= starts[:1]] if len(starts) else times
    return Timeline.unedited(times, starts)


def _from_index(stream: Any, delays: Int64) -> Timeline | None:
    """Return the frames of a stream that are decoded at a constant rate, if all are in the index; else None.

    The index of FFmpeg has the times of decoding; `delays` are those of `read_delays`.
    """
    entries = [(e.timestamp, e.pos, e.size, e.flags) for e in stream.index_entries]
    if len(entries) < 2 or len(entries) != stream.frames or stream.start_time is None:
        return None
    times, starts, sizes, flags = np.array(entries, np.int64).T
    steps = np.diff(times)
    is_key = (flags & 1) > 0
    if steps.min() != steps.max() or steps[0] <= 0 or (flags & 2).any() or not is_key[0]:
        return None
    shown = times
    if len(delays):
        counts, ticks = delays.T
        if counts.min() < 0 or counts.sum() != len(times):
            return None
        # Where a file was cut, frames are missing that are shown between others.
        shown = np.sort(times + np.repeat(ticks, counts))
        if np.diff(shown).min() <= 0:
            return None
    shift = stream.start_time - times[0]
    positions = np.stack([starts, starts + sizes], axis=1)
    pts = stream.start_time + shown - shown[0]
    return Timeline.unedited(pts, times[is_key] + shift, times, positions)
