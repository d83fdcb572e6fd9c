"""The frames of a video stream: their times, key frames and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from av.container import InputContainer

from streamplug.types import Int64

_MAX_GAP_BYTES = 16 << 10  # between packets that are fetched together
_MOV = "mov"


@dataclass(frozen=True)
class Timeline:
    """The frames of a video in the order in which they are shown.

    Attributes:
        pts: Time of each frame in ticks of the stream, int64, shape ``[frames]``, ascending.
        keys: Time at which each group of pictures begins, ascending.
        decode_times: Time at which each packet is decoded, or empty if it is not known where packets lie.
        positions: Start and stop of each packet in the file, shape ``[packets, 2]``.
    """

    pts: Int64
    keys: Int64
    decode_times: Int64
    positions: Int64

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


def read_timeline(container: InputContainer, stream: Any, *, use_index: bool = True) -> Timeline:
    """Return the frames of a stream: from the container's index if it has one, else from all packets."""
    if use_index and _MOV in container.format.name.split(","):
        indexed = _from_index(stream)
        if indexed is not None:
            return indexed
    pts, keys = [], []
    for packet in container.demux(stream):
        at = packet.pts if packet.pts is not None else packet.dts
        if at is None or not packet.size or packet.is_discard:
            continue
        pts.append(at)
        if packet.is_keyframe:
            keys.append(at)
    times = np.unique(np.array(pts, np.int64))
    starts = np.unique(np.array(keys or pts[:1], np.int64))
    return Timeline(times, starts, np.empty(0, np.int64), np.empty((0, 2), np.int64))


def _from_index(stream: Any) -> Timeline | None:
    """Return the frames of a stream of constant rate whose packets are all in the index; else None.

    The index has the times of decoding. At a constant rate, frames are shown as far apart as they are
    decoded.
    """
    entries = [(e.timestamp, e.pos, e.size, e.flags) for e in stream.index_entries]
    if len(entries) < 2 or len(entries) != stream.frames or stream.start_time is None:
        return None
    times, starts, sizes, flags = np.array(entries, np.int64).T
    steps = np.diff(times)
    is_key = (flags & 1) > 0
    if steps.min() != steps.max() or steps[0] <= 0 or (flags & 2).any() or not is_key[0]:
        return None
    shift = stream.start_time - times[0]
    pts = stream.start_time + np.arange(len(times)) * steps[0]
    return Timeline(pts, times[is_key] + shift, times, np.stack([starts, starts + sizes], axis=1))
