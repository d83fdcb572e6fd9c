"""The columns, and the decoders of columns of bytes."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from streamplug_av import Audio, AudioFiles, AudioWindows, Video, VideoClips, VideoFiles
from streamplug_testing import EncodingTests
from streamplug_testing.media import make_media

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError, EncodeError
from streamplug.plugin import make

FILES = [make_media(1 / 6, size=(16, 16), seed=n) for n in range(3)]
SOUNDS = [make_media(0.1, container="wav", codec="", audio="pcm_s16le", seed=n) for n in range(3)]


class _MediaTests(EncodingTests):
    wrong = ("clip.mp4", None, 5)
    kind: type

    def decoded(self, value):
        return self.kind(value)

    def equal(self, a, b):
        for value in (a, b):
            value.file.seek(0)
        return type(a) is type(b) and a.file.readall() == b.file.readall()


class TestVideo(_MediaTests):
    spec = "video"
    kind = Video
    refused = (b"", b"nothing", FILES[0][: len(FILES[0]) // 2], SOUNDS[0])

    def values(self):
        return st.sampled_from(FILES)


class TestAudio(_MediaTests):
    spec = "audio"
    kind = Audio
    refused = (b"", b"nothing", SOUNDS[0][:40], make_media(1 / 6, audio=None, size=(16, 16)))

    def values(self):
        return st.sampled_from([*SOUNDS, FILES[0]])


def test_errors_of_writing_say_why(tmp_path):
    with (
        pytest.raises(
            EncodeError, match=r"'video': not a file of video.*no video stream, but audio"
        ),
        MDSWriter(out=str(tmp_path / "set"), columns={"video": "video"}) as out,
    ):
        out.write({"video": SOUNDS[0]})


def test_bytes_are_decoded(tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"file": "bytes"}) as out:
        for data in FILES:
            out.write({"file": data})
    for decoder, kind in ((VideoFiles(), Video), (AudioFiles(), Audio)):
        dataset = StreamingDataset(local=str(tmp_path / "set"), decoders={"file": decoder})
        assert type(dataset[0]["file"]) is kind
    arrays = {
        VideoClips(2, size=(8, 8)): (3, 2, 8, 8, 3),
        AudioWindows(0.1, 4000, 0, 1): (3, 1, 400),
    }
    for decoder, shape in arrays.items():
        dataset = StreamingDataset(
            local=str(tmp_path / "set"), batch_size=3, decoders={"file": decoder}
        )
        assert next(iter(dataset.batches()))["file"].shape == shape


def test_clips_of_unequal_shape_are_lists(tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"video": "video"}) as out:
        for size in ((16, 16), (32, 16)):
            out.write({"video": make_media(1 / 6, size=size)})
    dataset = StreamingDataset(
        local=str(tmp_path / "set"), batch_size=2, decoders={"video": VideoClips(2)}
    )
    [batch] = dataset.batches()
    assert [clip.shape for clip in batch["video"]] == [(2, 16, 16, 3), (2, 16, 32, 3)]


@pytest.mark.parametrize(
    ("make_decoder", "message"),
    [
        (lambda: VideoClips(2, at="random"), "RandomClips"),
        (lambda: AudioWindows(1, at="random"), "RandomWindows"),
        (lambda: VideoClips(0), "frames=0"),
        (lambda: VideoClips(1, size=5), "size=5"),
        (lambda: AudioWindows(1, rate=0), "rate=0"),
        (lambda: VideoClips(2)(make("encoding", "str")), "not Str"),
        (lambda: VideoFiles()(make("encoding", "audio")), "not AudioFile"),
    ],
)
def test_wrong_options(make_decoder, message):
    with pytest.raises(ConfigError, match=message):
        make_decoder()
