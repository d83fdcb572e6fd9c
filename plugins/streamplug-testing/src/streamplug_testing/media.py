"""Small files of video and sound, made by PyAV."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


@cache
def make_media(
    seconds: float = 2.0,
    *,
    container: str = "mp4",
    codec: str = "libx264",
    audio: str | None = "aac",
    gop: int = 12,
    fps: int = 12,
    size: tuple[int, int] = (64, 48),
    options: tuple[tuple[str, str], ...] = (),
    muxer: tuple[tuple[str, str], ...] = (),
    uneven: bool = False,
    seed: int = 0,
    rate: int = 8000,
) -> bytes:
    """Return a file whose frames are a rolling picture, with a rising tone.

    Args:
        seconds: Length.
        container: Name of FFmpeg's muxer.
        codec: Name of the video encoder; empty for no video.
        audio: Name of the audio encoder; None for no sound.
        gop: Frames from one key frame to the next.
        fps: Frames in a second.
        size: Width and height in pixels.
        options: Options of the video encoder.
        muxer: Options of the muxer.
        uneven: Whether frames are at unequal distances.
        seed: Another one gives another picture and tone.
        rate: Samples in a second.
    """
    frames = _frames(round(seconds * fps), size, uneven=uneven, seed=seed)
    pieces = _pieces(seconds, rate, seed)
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/file"  # FFmpeg opens it again to move the index to its front
        with av.open(out, "w", format=container, options=dict(muxer)) as target:
            video: Any = None
            sound: Any = None
            if codec:
                video = target.add_stream(codec, rate=fps, options=dict(options))
                video.width, video.height = size
                video.pix_fmt, video.gop_size = "yuv420p", gop
                video.codec_context.thread_count = 1
            if audio:
                sound = target.add_stream(audio, rate=rate, layout="mono")
                if audio == "aac":
                    sound.bit_rate = 16000
            for piece in pieces:
                for frame in islice(frames, fps) if video else ():
                    target.mux(video.encode(frame))
                if sound:
                    convert = av.AudioResampler(sound.format, sound.layout, rate)
                    for converted in convert.resample(piece):
                        target.mux(sound.encode(converted))
            for stream in filter(None, (video, sound)):
                target.mux(stream.encode(None))
        return Path(out).read_bytes()


def _frames(
    count: int, size: tuple[int, int], *, uneven: bool, seed: int
) -> Iterator[av.VideoFrame]:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 255, (size[1] // 4, size[0] // 4, 3), np.uint8)
    picture = blocks.repeat(4, 0).repeat(4, 1)
    for n in range(count):
        frame = av.VideoFrame.from_ndarray(np.roll(picture, 2 * n, 1), "rgb24")
        frame.pts = 2 * n + (n % 3 == 2) if uneven else n
        yield frame


def _pieces(seconds: float, rate: int, seed: int) -> Iterator[av.AudioFrame]:
    """Yield sound second by second."""
    for second in range(math.ceil(seconds)):
        at = second * rate + np.arange(round(min(1.0, seconds - second) * rate))
        tone = 0.5 * np.sin(at * (0.02 + seed / 100) + at**2 * 1e-7)
        samples = (tone * 32767).astype(np.int16)[None]
        piece = av.AudioFrame.from_ndarray(samples, "s16", "mono")
        piece.sample_rate, piece.pts = rate, second * rate
        yield piece


def decode_frames(data: bytes) -> NDArray[np.uint8]:
    """Return all frames of a file, decoded without any seeking: shape ``[frames, height, width, 3]``."""
    with av.open(io.BytesIO(data)) as source:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in source.decode(video=0)])


def set_edits(
    data: bytes, edits: Sequence[tuple[float, float | None]], kind: str = "video", rate: float = 1.0
) -> bytes:
    """Return an MP4 or MOV file, with its index at the end, that has another edit list.

    Args:
        data: The file.
        edits: Duration of each part, and the time in the media at which it begins; None shows nothing. In
            seconds.
        kind: ``"video"`` or ``"audio"``, the kind of the tracks whose list it is.
        rate: Rate at which the last part is shown.
    """
    handler = {"video": b"vide", "audio": b"soun"}[kind]
    boxes = dict(_split_boxes(data))
    assert list(boxes)[-1] == b"moov", "the places of the samples must not move"
    movie = _split_boxes(boxes[b"moov"])
    movie_scale = int.from_bytes(dict(movie)[b"mvhd"][12:16], "big")
    for number, (name, body) in enumerate(movie):
        parts = dict(_split_boxes(body)) if name == b"trak" else {}
        media = dict(_split_boxes(parts.get(b"mdia", b"")))
        if media.get(b"hdlr", b"")[8:12] != handler:
            continue
        scale = int.from_bytes(media[b"mdhd"][12:16], "big")
        stored = [0, len(edits)]
        for duration, begin in edits:
            time = 2**32 - 1 if begin is None else round(begin * scale)
            stored += [round(duration * movie_scale), time, 1 << 16]
        stored[-1] = round(rate * (1 << 16))
        elst = b"".join(word.to_bytes(4, "big") for word in stored)
        head = {b"tkhd": parts.pop(b"tkhd"), b"edts": _join_boxes([(b"elst", elst)])}
        parts.pop(b"edts", None)
        movie[number] = name, _join_boxes([*head.items(), *parts.items()])
    end = len(data) - len(boxes[b"moov"]) - 8
    return data[:end] + _join_boxes([(b"moov", _join_boxes(movie))])


def _split_boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    boxes, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        boxes.append((data[at + 4 : at + 8], data[at + 8 : at + size]))
        at += size
    return boxes


def _join_boxes(boxes: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join((len(body) + 8).to_bytes(4, "big") + name + body for name, body in boxes)
