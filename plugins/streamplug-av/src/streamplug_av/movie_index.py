"""The index of MP4 and MOV files: where it is, its edit lists, and when frames are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from streamplug.errors import DecodeError
from streamplug.types import Int64
from streamplug_av.value_file import ValueFile

_HEAD_BYTES = 16
_BEGIN_BYTES = 1 << 10
_FIRST_TYPES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_MAX_TOP_BOXES = 64
_MAX_BOXES = 1 << 12  # in another box
_MAX_EDITS = 1 << 12
_EMPTY = -1  # the time in the media of a part in which nothing is shown
_NORMAL_RATE = 1 << 16

Place = tuple[int, int]
"""Where the content of a box begins and ends."""


@dataclass(frozen=True)
class Edit:
    """A part of the media that is shown, in ticks of its track.

    Attributes:
        begin: Time at which it is shown.
        duration: Ticks for which it is.
        media_time: Time in the media at which it begins.
    """

    begin: int
    duration: int
    media_time: int


def fetch_index(file: ValueFile) -> bool:
    """Fetch the box ``moov`` of a file, in two or three requests; return whether it has one.

    The file may be damaged, or of any other kind.
    """
    place = _find_index(file) if _read(file, 0)[4:8] in _FIRST_TYPES else None
    if place is None:
        return False
    file.fetch([place])
    return True


def read_edits(file: ValueFile, track: int) -> list[Edit]:
    """Return the parts of the media that the edit list of a track shows, which may last longer than it.

    Args:
        file: MP4 or MOV.
        track: Id of the track.

    Raises:
        DecodeError: If there are very many, or one of several is not shown at the normal rate.
    """
    place, scale, movie_scale = _find_edits(file, track)
    return _parse_edits(file, place, scale, movie_scale)


def end_edits(data: bytes, track: int, seconds: float) -> bytes:
    """Return an MP4 file of which a track with an edit list of one part ends after some seconds."""
    place, _, movie_scale = _find_edits(ValueFile(data), track)
    if place is None:
        raise DecodeError("the file has no edit list")
    start, _ = place
    at, width = start + 8, 8 if data[start : start + 1] == b"\1" else 4
    duration = int(seconds * movie_scale).to_bytes(width, "big")
    return data[:at] + duration + data[at + width :]


def read_delays(file: ValueFile, track: int) -> Int64:
    """Return the ticks from the decoding of samples until they are shown, without a common delay.

    Args:
        file: MP4 or MOV.
        track: Id of the track.

    Returns:
        Rows of a number of consecutive samples and their ticks; none if they are shown as they are decoded.
    """
    index = _find_index(file)
    place = _find_box(file, _find_track(file, index, track), b"mdia", b"minf", b"stbl", b"ctts")
    if place is None:
        return np.empty((0, 2), np.int64)
    start, stop = place
    count = min(int.from_bytes(file.read_at(start + 4, 4), "big"), (stop - start - 8) // 8)
    data = file.read_at(start + 8, max(count, 0) * 8)
    return np.frombuffer(data, ">i4", len(data) // 8 * 2).reshape(-1, 2).astype(np.int64)


def _find_edits(file: ValueFile, track: int) -> tuple[Place | None, int, int]:
    """Return where the edit list of a track is, and the ticks in a second of the track and the movie."""
    index = _find_index(file)
    trak = _find_track(file, index, track)
    scale = _word(file, _find_box(file, trak, b"mdia", b"mdhd"))
    movie_scale = _word(file, _find_box(file, index, b"mvhd"))
    return _find_box(file, trak, b"edts", b"elst"), scale, movie_scale


def _find_track(file: ValueFile, index: Place | None, track: int) -> Place | None:
    for kind, place in _boxes(file, index):
        head = _find_box(file, place, b"tkhd") if kind == b"trak" else None
        if head is not None and _word(file, head) == track:
            return place
    return None


def _find_box(file: ValueFile, place: Place | None, *path: bytes) -> Place | None:
    """Return where a box is that is in other boxes; the last one if there are several."""
    for kind in path:
        place = dict(_boxes(file, place)).get(kind)
    return place


def _parse_edits(file: ValueFile, place: Place | None, scale: int, movie_scale: int) -> list[Edit]:
    """Parse an edit list, whose durations are in ticks of the movie."""
    if place is None or not movie_scale:
        return []
    start, stop = place
    head = file.read_at(start, 8)
    width = 8 if head[:1] == b"\1" else 4  # bytes of a duration and of a time
    size = 2 * width + 4
    count = min(int.from_bytes(head[4:], "big"), max(stop - start - 8, 0) // size)
    if count > _MAX_EDITS:
        raise DecodeError(
            f"the edit list of the file has {count:,} parts, at most {_MAX_EDITS:,} are supported; encode "
            "the file again"
        )
    data = file.read_at(start + 8, count * size)
    edits, rates, begin = [], set(), 0
    for at in range(0, len(data), size):
        duration = int.from_bytes(data[at : at + width], "big")
        duration = (2 * duration * scale + movie_scale) // (2 * movie_scale)
        media_time = int.from_bytes(data[at + width : at + 2 * width], "big", signed=True)
        if media_time != _EMPTY:
            edits.append(Edit(begin, duration, max(media_time, 0)))
            rates.add(int.from_bytes(data[at + 2 * width : at + size], "big"))
        begin += duration
    # Some writers store a rate of 0 for a whole file, which all players ignore.
    if len(edits) > 1 and (others := rates - {_NORMAL_RATE}):
        raise DecodeError(
            f"the edit list of the file shows a part at a rate of {min(others) / _NORMAL_RATE:g}, only 1 "
            "is supported; encode the file again"
        )
    return edits


def _find_index(file: ValueFile) -> Place | None:
    for kind, place in islice(_boxes(file, (0, len(file))), _MAX_TOP_BOXES):
        if kind == b"moov":
            return place
    return None


def _boxes(file: ValueFile, place: Place | None) -> Iterator[tuple[bytes, Place]]:
    """Yield the type of each box in another one, or in the file, and where its content is."""
    at, end = place or (0, 0)
    for _ in range(_MAX_BOXES):
        if at + 8 > end:
            return
        head = _read(file, at)
        size, begin = int.from_bytes(head[:4], "big"), at + 8
        if size == 1:
            size, begin = int.from_bytes(head[8:16], "big"), at + 16
        stop = end if size == 0 else min(at + size, end)
        if stop < begin:
            return
        yield head[4:8], (begin, stop)
        at = stop


def _word(file: ValueFile, place: Place | None) -> int:
    """Return what follows the two times in the head of a movie, track or medium: its scale or id."""
    data = file.read_at(place[0], 24) if place else b""
    at = 20 if data[:1] == b"\1" else 12
    return int.from_bytes(data[at : at + 4], "big")


def _read(file: ValueFile, at: int) -> bytes:
    """Return the head of a box, without fetching much of the box."""
    file.fetch([(at, min(at + (_HEAD_BYTES if at else _BEGIN_BYTES), len(file)))])
    return file.read_at(at, _HEAD_BYTES)
