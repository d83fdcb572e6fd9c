"""Containers that are opened for reading, with errors that say what is wrong."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import av
from av.container import InputContainer
from av.stream import Stream

from streamplug.errors import DecodeError, StreamplugError
from streamplug_av.movie_index import Edit, fetch_index, read_edits
from streamplug_av.value_file import ValueFile

_DISCARD: Any = getattr(
    av.stream, "Discard", None
)  # before version 18, packets of all streams are read

DISCARDED_FLAG = 2
"""AVINDEX_DISCARD_FRAME of FFmpeg: the packet of an entry in the index is outside of the edit list."""

_STORED_DURATIONS = {
    *("aiff", "asf", "au", "avi", "caf", "flac", "flv", "matroska", "mov", "mpeg", "mpegts", "mxf"),
    *("nut", "ogg", "tta", "w64", "wav", "wtv", "wv"),
}
"""Containers that store how long they are, or the times of their last packets."""
_FRAME_COUNT = re.compile(rb"Xing|Info|VBRI")  # what the first frame of an MP3 file may have

# Playlists and the like must not lead FFmpeg to other files: no protocol has this name.
_OPTIONS = {"protocol_whitelist": "none"}
# An index says nearly everything, so that no more than the first packets are read.
_INDEXED = {"probesize": "32", "analyzeduration": "0"}

# Containers and their streams refer to each other, so the garbage collector frees them. In a forked process
# that would wait for ever for the threads of decoders, which it lacks: what was inherited is left alone.
os.register_at_fork(after_in_child=gc.freeze)


@contextmanager
def decode_errors(what: str) -> Iterator[None]:
    """Turn the errors of FFmpeg into `DecodeError`; those of fetching stay as they are."""
    try:
        yield
    except StreamplugError:
        raise
    except Exception as error:  # FFmpeg raises arbitrary errors for damaged files
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DecodeError(f"{what}: {reason}") from error


def open_container(file: ValueFile, *, use_edits: bool = True) -> InputContainer:
    """Open a container; of MP4 and MOV, the index is fetched at once.

    Args:
        file: The file.
        use_edits: Whether packets have the times of edit lists, or those at which they are stored.

    Raises:
        DecodeError: If it is no container that FFmpeg reads.
    """
    options = _OPTIONS if use_edits else {**_OPTIONS, "ignore_editlist": "1"}
    if file.is_far and fetch_index(file):
        options = {**options, **_INDEXED}
    with decode_errors(f"cannot open the file of {len(file):,} bytes"):
        return av.open(file.view(), "r", options=options)


def select_stream(container: InputContainer, kind: str) -> Any:
    """Return the first stream of a kind, ``"video"`` or ``"audio"``; packets of others are skipped.

    Raises:
        DecodeError: If there is none, or FFmpeg has no decoder for it.
    """
    streams = [s for s in container.streams if s.type == kind and not _is_cover(s)]
    if not streams:
        kinds = ", ".join(stream.type for stream in container.streams) or "nothing"
        raise DecodeError(f"the file has no {kind} stream, but {kinds}")
    if streams[0].codec_context is None:
        raise DecodeError(f"the {kind} stream has a codec that FFmpeg does not know")
    for stream in container.streams if _DISCARD is not None else ():
        if stream is not streams[0]:
            stream.discard = _DISCARD.all
    streams[0].codec_context.thread_count = 1  # with more, frames come out later
    return streams[0]


def _is_cover(stream: Stream) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def start_seconds(container: InputContainer) -> float:
    """Return the time of the container at which its first stream begins.

    It is negative where packets come first that only prime a decoder, which do not count.
    """
    begins = [(container.start_time or 0) / av.time_base]
    if is_mov(container):
        begins += [sound_begin(container, stream) for stream in container.streams.audio]
    return max(min(begins), 0.0)


def video_edits(container: InputContainer, file: ValueFile, stream: Any) -> list[Edit]:
    """Return the parts of the media that an edit list shows; none if FFmpeg's packets say all of it.

    They do unless some only serve to decode others, or there are several parts: then packets of different
    frames have the same times.

    Raises:
        DecodeError: If there is such an edit list, but in a form that is not read.
    """
    if not is_mov(container):
        return []
    edits, entries = read_edits(file, stream.id), stream.index_entries
    ends = (entries[0], entries[-1]) if len(entries) else ()
    is_cut = any(entry.flags & DISCARDED_FLAG for entry in ends)
    if is_cut and not edits:
        raise DecodeError("the edit list of the file cannot be read; encode the file again")
    return edits if is_cut or len(edits) > 1 else []


def edits_end(edits: list[Edit], stream: Any) -> int:
    """Return the time in ticks at which the last part of an edit list ends, or the media does.

    Args:
        edits: The parts.
        stream: The stream of a container that was opened without `use_edits`.
    """
    end = (stream.start_time or 0) + (stream.duration or 0)
    return edits[-1].begin + min(edits[-1].duration, end - edits[-1].media_time)


def sound_begin(container: InputContainer, stream: Any) -> float:
    """Return the time of the container at which the first packet of sound begins, in seconds."""
    # FFmpeg takes the begin of the video for that of sound of which it has read no packet.
    for entry in stream.index_entries if is_mov(container) else ():
        if not entry.flags & DISCARDED_FLAG:
            return float(entry.timestamp * stream.time_base)
    return float((stream.start_time or 0) * stream.time_base)


def is_mov(container: InputContainer) -> bool:
    """Return whether a container is MP4, MOV or the like."""
    return "mov" in container.format.name.split(",")


def stores_duration(container: InputContainer, file: ValueFile) -> bool:
    """Return whether a file says how long it is; of others, FFmpeg may guess it from the first bit rates."""
    if not container.duration:
        return False
    if container.format.name != "mp3":
        return not _STORED_DURATIONS.isdisjoint(container.format.name.split(","))
    head, begin = file.read_at(0, 10), 0
    if head[:3] == b"ID3":  # its size has 7 bits in each byte
        begin = len(head) + sum(byte << 7 * place for place, byte in enumerate(head[:5:-1]))
    return _FRAME_COUNT.search(file.read_at(begin, 64)) is not None
