"""Frames of videos: those of a full decode, wherever they are sought."""

from __future__ import annotations

import io
import pickle

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_av import Video
from streamplug_av.movie_index import Edit
from streamplug_av.timeline import Timeline
from streamplug_testing.media import set_edits

from streamplug.errors import ConfigError, DecodeError, EncodeError
from streamplug.plugin import make

KINDS = {
    "h264 with B-frames": {"options": (("bf", "2"),)},
    "h264, moov in front": {"muxer": (("movflags", "faststart"),)},
    "h264, open groups": {"options": (("x264-params", "open-gop=1:bframes=3:b-adapt=0"),)},
    "mpeg4": {"codec": "mpeg4", "options": (("bf", "2"),)},
    "mpeg4 in mov": {"codec": "mpeg4", "container": "mov", "audio": "pcm_s16le"},
    "vp9": {"codec": "libvpx-vp9", "container": "webm", "audio": "libopus", "rate": 48000},
    "matroska": {"container": "matroska", "options": (("bf", "2"),)},
    "fragments": {"muxer": (("movflags", "frag_keyframe+empty_moov"),)},
    "one tick for each frame": {"muxer": (("video_track_timescale", "12"),)},
    "of uneven times": {"uneven": True, "options": (("bf", "2"),)},
    "mpegts": {"container": "mpegts"},
    "mpeg4 in avi": {
        "codec": "mpeg4",
        "container": "avi",
        "audio": None,
        "options": (("bf", "2"),),
    },
    "h264 in avi": {"container": "avi", "audio": None, "options": (("bf", "0"),)},
    "mpeg2 program": {
        "codec": "mpeg2video",
        "container": "mpeg",
        "audio": None,
        "fps": 25,
        "options": (("bf", "2"),),
    },
    "one frame": {"seconds": 1 / 12},
    "one group, no sound": {"gop": 100, "audio": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rounded_times_are_those_of_their_frames(media, kind):
    video = Video(media(**KINDS[kind]))
    milliseconds = video.times * 1000
    for times in (milliseconds.round() / 1000, np.floor(milliseconds) / 1000):
        assert (video.index_at(times) == np.arange(video.num_frames)).all()


def test_float32_times_of_a_long_video_are_those_of_their_frames(media):
    size, timescale = (16, 16), (("video_track_timescale", "90000"),)
    video = Video(media(200.0, fps=10, gop=100, audio=None, size=size, muxer=timescale))
    times = np.arange(video.num_frames, dtype=np.float32) / np.float32(10)
    assert (video.index_at(times) == np.arange(video.num_frames)).all()
    assert video.index_at(times[1:] - 0.002).tolist() == list(range(video.num_frames - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_equal_those_of_a_full_decode(media, all_frames, kind):
    data = media(**KINDS[kind])
    expected = all_frames(data)
    video = Video(data)
    assert video.num_frames == len(expected)
    assert (video.frames(indices=np.arange(len(expected))) == expected).all()

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(0, len(expected) - 1), min_size=1, max_size=5))
    def check(indices):
        assert (Video(data).frames(indices=indices) == expected[indices]).all()
        late = video.times[indices] + 0.9 / KINDS[kind].get("fps", 12)
        assert (video.frames(times=late) == expected[indices]).all()

    check()


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("avi", "libx264"),
        ("asf", "libx264"),
        ("mxf", "libx264"),
        ("mpeg", "libx264"),
        ("h264", "libx264"),
        ("asf", "mpeg2video"),
        ("mpeg1video", "mpeg1video"),
    ],
)
def test_files_that_do_not_say_when_frames_are_shown(media, container, codec):
    options = (("bf", "2"), ("x264-params", "b-adapt=0")) if codec == "libx264" else (("bf", "2"),)
    data = media(container=container, codec=codec, audio=None, fps=25, options=options)
    message = r"does not say when the frames of its \w+ stream are shown; encode it again"
    with pytest.raises(EncodeError, match=message):
        make("encoding", "video").encode(data)
    for indices in ([1], [3], [2, 3], [12, 13], [49]):
        video = Video(data)
        for _ in range(2):
            with pytest.raises(DecodeError, match=message):
                video.frames(indices=indices)


@pytest.mark.parametrize(
    ("container", "muxer", "first"),
    [
        ("matroska", {}, 5),
        ("mpegts", {}, 5),
        # The second key frame, which is followed by frames that are shown before it.
        ("mp4", {"movflags": "empty_moov", "frag_duration": "1000000"}, 12),
    ],
)
def test_frames_before_the_first_key_frame_do_not_count(media, all_frames, container, muxer, first):
    options = (("bf", "2"), ("x264-params", f"open-gop={first // 12}"))
    out = io.BytesIO()
    with (
        av.open(io.BytesIO(media(3.0, audio=None, options=options))) as source,
        av.open(out, "w", container, muxer) as target,
    ):
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream, opaque=True)
        packets = [packet for packet in source.demux(stream) if packet.size][first:]
        begin, shown = packets[0].dts, min(packet.pts for packet in packets)
        key = next(packet.pts for packet in packets if packet.is_keyframe)
        assert shown < key
        for packet in packets:
            packet.pts, packet.dts, packet.stream = packet.pts - begin, packet.dts - begin, copied
            target.mux(packet)
    expected = all_frames(out.getvalue())
    video = Video(out.getvalue())
    assert video.num_frames == len(expected) < len(packets)
    np.testing.assert_array_equal(video.frames(indices=range(len(expected))), expected)
    np.testing.assert_array_equal(video.frames(times=video.times), expected)
    assert make("encoding", "video").encode(out.getvalue()) == out.getvalue()


@pytest.mark.parametrize("count", [2, 4, 5, 11, 13, 20])
def test_frames_of_a_file_that_was_cut_between_b_frames(media, all_frames, count):
    options = (("x264-params", "bframes=7:b-adapt=0:b-pyramid=normal"),)
    out = io.BytesIO()
    with (
        av.open(io.BytesIO(media(2.0, gop=24, audio=None, options=options))) as source,
        av.open(out, "w", "mp4") as target,
    ):
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream, opaque=True)
        packets = [packet for packet in source.demux(stream) if packet.size][:count]
        times = sorted(packet.pts * packet.time_base for packet in packets)
        for packet in packets:
            packet.stream = copied
            target.mux(packet)
    assert times[-1] - times[0] > (count - 1) / 12, "frames are missing before the last"
    data, expected = out.getvalue(), all_frames(out.getvalue())
    np.testing.assert_allclose(Video(data).times, [float(at - times[0]) for at in times], atol=1e-4)
    for number in range(count):
        assert (Video(data).frames(indices=[number])[0] == expected[number]).all()
        at = float(times[number] - times[0])
        assert (Video(data).frames(times=[at])[0] == expected[number]).all()


def test_properties(media):
    video = Video(media(2.0))
    assert video.size == (64, 48)
    assert video.fps == 12
    assert video.codec == "h264"
    assert video.num_frames == 24
    assert video.duration == pytest.approx(2.0, abs=0.01)
    assert np.allclose(video.times, np.arange(24) / 12, atol=1e-3)
    assert repr(video) == "<Video: 2.00 s, 64 x 48, 12 fps>"
    assert repr(Video(b"nothing")).startswith("<Video: cannot open the file of 7 bytes")
    assert video._repr_png_().startswith(b"\x89PNG")
    assert (pickle.loads(pickle.dumps(video)).clip(2) == video.clip(2)).all()


def test_clips(media, all_frames):
    data = media(2.0)
    video, expected = Video(data), all_frames(data)
    assert (video.clip(4, 3) == expected[7:17:3]).all()
    assert (video.clip(4, 3, at=1.0) == expected[12:24:3]).all()
    assert (video.clip(3, 2, at=1.9) == expected[[22, 23, 23]]).all()
    assert (video.clip(50)[-1] == expected[23]).all()
    numbers = video.clip_indices(4, 3, "random", np.random.default_rng(1))
    assert (video.clip(4, 3, "random", rng=np.random.default_rng(1)) == expected[numbers]).all()
    starts = [video.clip_indices(4, 3, "random", np.random.default_rng(n))[0] for n in range(90)]
    assert set(starts) == set(range(15))
    assert video.clip(2, size=(24, 32)).shape == (2, 24, 32, 3)
    assert video.frames(indices=[]).shape == (0, 48, 64, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": [0], "indices": [0]}, "either times= or indices="),
        ({}, "either times= or indices="),
        ({"times": [9]}, "times=9: frames are shown from 0 to 2 s"),
        ({"times": [[0], [1, 2]]}, "expected numbers of seconds"),
        ({"times": "end"}, "times='end': expected numbers of seconds"),
        ({"indices": [24]}, "indices=24: the video has 24 frames"),
        ({"indices": [2**64 - 1]}, "indices=18446744073709551615: the video has 24 frames"),
        ({"indices": [1.7]}, r"indices=\[1.7\]: expected whole numbers, not float64"),
        ({"indices": [True, False]}, "expected whole numbers, not bool"),
        ({"indices": "1"}, "indices='1': expected whole numbers"),
        ({"indices": [0], "size": (0, 1)}, "size"),
    ],
)
def test_wrong_arguments_of_frames(media, arguments, message):
    with pytest.raises(ConfigError, match=message):
        Video(media(2.0)).frames(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": 0}, "frames=0"),
        ({"frames": 1, "stride": 0}, "stride=0"),
        ({"frames": 1, "at": "end"}, "at='end'"),
        ({"frames": 1, "at": -1}, "at=-1"),
        ({"frames": 1, "at": "random"}, "needs rng="),
    ],
)
def test_wrong_arguments_of_clips(media, arguments, message):
    with pytest.raises(ConfigError, match=message):
        Video(media(2.0)).clip(**arguments)


def test_late_clip_is_an_error_of_the_data(media):
    with pytest.raises(DecodeError, match=r"no clip at=7: times=7: frames are shown from 0 to 2 s"):
        Video(media(2.0)).clip(1, at=7)


def test_truncated_file_names_the_time(media):
    data = media(4.0, muxer=(("movflags", "faststart"),))
    cut = Video(data[: len(data) * 3 // 4])
    assert cut.clip(2, at=0.0).shape == (2, 48, 64, 3)
    with pytest.raises(DecodeError, match=r"at 3\.\d+ s: "):
        cut.clip(2, at=3.5)
    with pytest.raises(DecodeError, match="cannot open the file"):
        Video(media(4.0)[:-2000]).clip(1)


def test_damaged_frame_names_the_time(media):
    data = bytearray(media(4.0, muxer=(("movflags", "faststart"),)))
    with av.open(io.BytesIO(data)) as source:
        key = [e for e in source.streams.video[0].index_entries if e.is_keyframe][2]
        data[key.pos + 5 : key.pos + key.size] = bytes(key.size - 5)
    video = Video(bytes(data))
    video.clip(2, at=0.0)
    with pytest.raises(DecodeError, match=r"at 2\.000 s"):
        video.clip(2, at=2.0)


def test_file_without_video(media):
    with pytest.raises(DecodeError, match="no video stream, but audio"):
        Video(media(codec="")).clip(1)


def test_playlists_open_no_other_files(tmp_path, media):
    (tmp_path / "secret.ts").write_bytes(media(container="mpegts"))
    playlist = (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{tmp_path}/secret.ts\n#EXT-X-ENDLIST\n"
    )
    with pytest.raises(DecodeError):
        Video(playlist.encode()).clip(1)
    listed = f"ffconcat version 1.0\nfile {tmp_path}/secret.ts\n"
    with pytest.raises(DecodeError):
        Video(listed.encode()).clip(1)


def test_the_last_frame_of_rising_distances_is_found_by_its_time():
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as target:
        stream = target.add_stream("libx264", rate=10, options={"bf": "3"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(20):
            pixels = np.full((48, 64, 3), 10 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts = number + number**2 // 4
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    video = Video(out.getvalue())
    assert video.duration < video.times[-1]  # FFmpeg counts until the last frame is decoded
    assert (video.frames(times=video.times) == video.frames(indices=np.arange(20))).all()


def test_frames_of_several_sizes_need_one_to_which_they_are_scaled():
    def part(size, first):
        out = io.BytesIO()
        with av.open(out, "w", format="mpegts") as target:
            stream = target.add_stream("mpeg2video", rate=25, options={"bf": "0"})
            stream.width, stream.height = size
            for number in range(first, first + 5):
                pixels = np.full((*size[::-1], 3), 10 * number, np.uint8)
                frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
                frame.pts = number
                target.mux(stream.encode(frame))
            target.mux(stream.encode(None))
        return out.getvalue()

    video = Video(part((64, 48), 0) + part((32, 32), 5))
    assert video.frames(indices=[8]).shape == (1, 32, 32, 3)
    assert video.size == (64, 48)
    with pytest.raises(
        DecodeError, match="of several sizes, 32 x 32 and 64 x 48 pixels; pass size="
    ):
        video.frames(indices=[0, 8])
    assert video.frames(indices=[0, 8], size=(16, 20)).shape == (2, 16, 20, 3)


EDITED_KINDS = {
    "h264": {"options": (("bf", "0"),)},
    "h264 with B-frames": {"options": (("bf", "2"),)},
    "h264, open groups": {"options": (("x264-params", "open-gop=1:bframes=3:b-adapt=0"),)},
    "h264 of uneven times": {"uneven": True, "options": (("bf", "2"),)},
    "h264 in mov, without sound": {"container": "mov", "audio": None, "options": (("bf", "2"),)},
    "hevc": {"codec": "libx265", "options": (("x265-params", "log-level=none:open-gop=1"),)},
    "mpeg4": {"codec": "mpeg4", "options": (("bf", "2"),)},
    "mpeg4 in mov": {"codec": "mpeg4", "container": "mov", "audio": "pcm_s16le"},
}
EDITS = {
    "begin between key frames": [(2.0, 7 / 12)],
    "begin between frames": [(2.0, 7.4 / 12)],
    "begin at a key frame": [(1.2, 1.0)],
    "end before the end": [(1.3, 0.0)],
    "longer than the media": [(9.0, 1.25)],
    "delay": [(0.5, None), (1.5, 5 / 12)],
    "several parts": [(1.0, 1.25), (0.5, 0.25)],
    "repeated parts": [(1.0, 5 / 12), (1.0, 5 / 12)],
    "parts with a gap": [(1.0, 1.25), (0.5, None), (1.0, 2.1)],
}


def stored_frames(data):
    """Return the time of each stored frame in ticks, and all of them, without an edit list."""
    with av.open(io.BytesIO(data), options={"ignore_editlist": "1"}) as source:
        stream = source.streams.video[0]
        pairs = [(frame.pts, frame.to_ndarray(format="rgb24")) for frame in source.decode(stream)]
        return float(stream.time_base), *map(np.array, zip(*pairs))


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("kind", EDITED_KINDS)
def test_edit_lists_show_the_frames_of_their_parts(media, kind, edits):
    data = media(3.0, **EDITED_KINDS[kind])
    tick, pts, frames = stored_frames(data)
    data = set_edits(data, edits)
    numbers, times, begin = [], [], 0.0
    for duration, start in edits:
        if start is not None:
            first = round(start / tick)
            last = first + round(duration / tick)
            shown = np.flatnonzero((pts >= first) & (pts < last))
            numbers.extend(shown)
            times.extend(begin + (pts[shown] - pts[shown[0]]) * tick)
        begin += duration
    video = Video(data)
    assert video.num_frames == len(numbers)
    np.testing.assert_array_equal(video.frames(indices=range(len(numbers))), frames[numbers])
    # The sound is there from the begin on, also before a delayed video.
    origin = times[0] if video.audio is None else 0.0
    np.testing.assert_allclose(video.times, np.array(times) - origin, atol=1e-3)
    np.testing.assert_array_equal(video.frames(times=video.times), frames[numbers])
    for number in (len(numbers) - 1, 0, len(numbers) // 2):
        again = Video(data)
        assert (again.frames(times=[again.times[number]])[0] == frames[numbers[number]]).all()
    clip = [numbers[min(n, len(numbers) - 1)] for n in (2, 5, 8, 11)]
    assert (video.clip(4, 3, at=float(video.times[2])) == frames[clip]).all()
    if sum(start is not None for _, start in edits) == 1:
        with av.open(io.BytesIO(data)) as source:  # as FFmpeg has them
            expected = [(f.time, f.to_ndarray(format="rgb24")) for f in source.decode(video=0)]
            origin = (source.start_time or 0) / av.time_base
        np.testing.assert_allclose(video.times, [at - origin for at, _ in expected], atol=1e-4)
        np.testing.assert_array_equal(frames[numbers], [frame for _, frame in expected])
    [(duration, start)] = edits[-1:]
    end = begin - max(start + duration - (pts[-1] * tick + 1 / 12), 0)
    first = 0.0 if edits[0][1] is not None else edits[0][0]
    assert video.duration == pytest.approx(end - first, abs=0.1)


def test_files_that_were_cut_without_encoding_begin_at_the_cut(media, all_frames):
    out, data = io.BytesIO(), media(3.0, audio=None, options=(("bf", "2"),))
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", "mp4") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream, opaque=True)
        cut = round(5 / 12 / stream.time_base)
        for packet in source.demux(stream):
            if packet.size:
                packet.pts, packet.dts, packet.stream = packet.pts - cut, packet.dts - cut, copied
                target.mux(packet)
    video, expected = Video(out.getvalue()), all_frames(data)[5:]
    assert (video.frames(indices=range(31)) == expected).all()
    assert video.times[0] == 0
    assert (video.frames(times=[0.0]) == expected[0]).all()
    assert make("encoding", "video").encode(out.getvalue()) == out.getvalue()


def test_edit_lists_that_are_not_supported_are_refused(media):
    data = media(3.0)
    slow = set_edits(data, [(1.0, 0.0), (1.0, 1.5)], rate=0.5)
    with pytest.raises(DecodeError, match=r"shows a part at a rate of 0\.5, only 1 is supported"):
        Video(slow).clip(1)
    with pytest.raises(DecodeError, match="the video has no frames"):
        Video(set_edits(data, [(1.0, 7.0)])).clip(1)
    with pytest.raises(DecodeError, match=r"has 5,000 parts, at most 4,096 are supported"):
        Video(set_edits(data, [(0.1, 0.0)] * 5000)).clip(1)
    edits = [Edit(0, 1000, 0)] * 20_000
    with pytest.raises(DecodeError, match=r"shows 20,000,000 frames, at most 16,777,216"):
        Timeline.unedited(np.arange(1000), np.arange(1)).edited(edits)
