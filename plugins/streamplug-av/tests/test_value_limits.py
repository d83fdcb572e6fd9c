"""Frames and samples stop at `max_value_bytes`, whatever a file says of itself."""

from __future__ import annotations

import pickle

import pytest
from streamplug_av import Audio, AudioWindows, Video, VideoClips

from streamplug.errors import DecodeError
from streamplug.plugin import make

MATCH = r"takes more than max_value_bytes=\d+ when decoded"


@pytest.fixture(scope="module")
def data(media):
    return media(1.0, container="mp4", audio="aac", codec="libx264")


def test_frames(data):
    width, height = Video(data).size
    frame = width * height * 3
    assert len(Video(data, 2 * frame).frames(indices=[0, 1])) == 2
    with pytest.raises(DecodeError, match=rf"3 frames of {width} x {height} pixels {MATCH}"):
        Video(data, 2 * frame).frames(indices=[0, 1, 2])
    with pytest.raises(DecodeError, match=MATCH):
        Video(data, frame - 1).frames(indices=[0], size=(1, 1))
    bounded = make("encoding", "video").with_max_value_bytes(frame - 1).decode(memoryview(data))
    with pytest.raises(DecodeError, match=MATCH):
        len(pickle.loads(pickle.dumps(bounded)).times)
    clips = VideoClips(frames=2)(make("encoding", "video"))
    assert clips.with_max_value_bytes(2 * frame).decode(memoryview(data)).shape[0] == 2
    with pytest.raises(DecodeError, match=MATCH):
        clips.with_max_value_bytes(2 * frame - 1).decode(memoryview(data))


def test_the_limit_holds_after_the_first_error(data):
    width, height = Video(data).size
    video = Video(data, width * height * 3 - 1)
    for _ in range(2):
        with pytest.raises(DecodeError, match=MATCH):
            video.frames(indices=[0], size=(1, 1))
        assert "takes more than" in repr(video)


def test_frames_that_are_larger_than_the_header_says(data):
    video = Video(data, 2 * Video(data).size[0] * Video(data).size[1] * 3)
    video._stream.codec_context.options = {"max_pixels": "100"}
    with pytest.raises(DecodeError, match=r"at 0\.000 s"):
        video.frames(indices=[0])


def test_samples(data):
    sound = Audio(data)
    second = sound.rate * sound.channels * 4
    assert Audio(data, max_value_bytes=second // 2).samples(0.0, 0.5).shape[1] == sound.rate // 2
    with pytest.raises(DecodeError, match=rf"0\.600 s of sound at {sound.rate} Hz {MATCH}"):
        Audio(data, max_value_bytes=second // 2).samples(0.0, 0.6)
    bounded = make("encoding", "audio").with_max_value_bytes(9).decode(memoryview(data))
    with pytest.raises(DecodeError, match=MATCH):
        pickle.loads(pickle.dumps(bounded)).samples()
    with pytest.raises(DecodeError, match=MATCH):
        Video(data, 9).audio.samples(0.0, 0.1)
    windows = AudioWindows(seconds=0.5)(make("encoding", "audio"))
    assert len(windows.with_max_value_bytes(second // 2).decode(memoryview(data)))
    with pytest.raises(DecodeError, match=MATCH):
        windows.with_max_value_bytes(second // 2 - 4).decode(memoryview(data))
