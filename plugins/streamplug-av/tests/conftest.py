"""Small files of video and audio, made for the tests."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import av
import numpy as np
import pytest


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
    """Return a file whose frames are a rolling picture, with a rising tone."""
    folder = tempfile.mkdtemp()
    out = f"{folder}/file"  # FFmpeg opens it again to move the index to its front
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 255, (size[1] // 4, size[0] // 4, 3), np.uint8).repeat(4, 0).repeat(4, 1)
    with av.open(out, "w", format=container, options=dict(muxer)) as target:
        video = sound = None
        if codec:
            video = target.add_stream(codec, rate=fps, options=dict(options))
            video.width, video.height = size
            video.pix_fmt, video.gop_size = "yuv420p", gop
            video.codec_context.thread_count = 1
        if audio:
            sound = target.add_stream(audio, rate=rate, layout="mono")
            if audio == "aac":
                sound.bit_rate = 16000
        for second in range(int(np.ceil(seconds))):
            count = min(fps, round((seconds - second) * fps))
            for n in range(second * fps, second * fps + count) if video else ():
                frame = av.VideoFrame.from_ndarray(np.roll(picture, 2 * n, 1), "rgb24")
                frame.pts = n + (n % 3 == 2 if uneven else 0) + n * uneven
                for packet in video.encode(frame):
                    target.mux(packet)
            if sound:
                length = round(min(1.0, seconds - second) * rate)
                at = second * rate + np.arange(length)
                tone = (0.5 * np.sin(at * (0.02 + seed / 100) + at**2 * 1e-7)).astype(np.float32)
                samples = (tone * 32767).astype(np.int16)[None]
                piece = av.AudioFrame.from_ndarray(samples, "s16", "mono")
                piece.sample_rate, piece.pts = rate, second * rate
                convert = av.AudioResampler(sound.format, sound.layout, rate)
                for converted in convert.resample(piece):
                    for packet in sound.encode(converted):
                        target.mux(packet)
        for stream in (video, sound):
            for packet in stream.encode(None) if stream else ():
                target.mux(packet)
    data = Path(out).read_bytes()
    shutil.rmtree(folder)
    return data


@pytest.fixture(scope="session")
def media() -> Callable[..., bytes]:
    """Return the function that makes files."""
    return make_media


@pytest.fixture(scope="session")
def all_frames() -> Callable[[bytes], np.ndarray]:
    """Return a function that decodes all frames of a file, without any seeking."""

    def decode(data: bytes) -> np.ndarray:
        with av.open(io.BytesIO(data)) as source:
            return np.stack([frame.to_ndarray(format="rgb24") for frame in source.decode(video=0)])

    return decode
