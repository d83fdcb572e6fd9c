"""Windows of sound: those of a full decode, wherever they are sought."""

from __future__ import annotations

import io
import pickle
import wave
from types import SimpleNamespace

import av
import numpy as np
import pytest
from streamplug_av import Audio, AudioWindows, RandomWindows, Video
from streamplug_testing.media import set_edits

from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import GatherBuffer
from streamplug.plugin import make

KINDS = {
    "wav": {"container": "wav", "audio": "pcm_s16le"},
    "adpcm in wav": {"container": "wav", "audio": "adpcm_ima_wav"},
    "flac": {"container": "flac", "audio": "flac"},
    "mp3": {"container": "mp3", "audio": "libmp3lame"},
    "aac": {"container": "mp4", "audio": "aac"},
    "aac beside video": {"container": "mp4", "audio": "aac", "codec": "libx264"},
    "opus": {"container": "ogg", "audio": "libopus", "rate": 48000},
    "opus in webm": {"container": "webm", "audio": "libopus", "rate": 48000},
    "pcm in mov": {"container": "mov", "audio": "pcm_s16le"},
}


def all_samples(data):
    with av.open(io.BytesIO(data)) as source:
        convert = av.AudioResampler(format="fltp")
        return np.concatenate(
            [
                part.to_ndarray()
                for frame in source.decode(audio=0)
                for part in convert.resample(frame)
            ],
            axis=1,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_windows_equal_a_full_decode(media, kind):
    options = {"codec": "", **KINDS[kind]}
    data = media(3.0, **options)
    expected = all_samples(data)
    rate = options.get("rate", 8000)
    # The noise that AAC makes up depends on what was decoded before.
    tolerance = 2e-2 if "aac" in kind else 0
    for start, stop in ((0.0, 0.5), (1.25, 1.75), (0.1, 2.9), (2.0, 2.9)):
        window = Audio(data).samples(start, stop)
        assert window.dtype == np.float32
        part = expected[:, round(start * rate) : round(stop * rate)]
        assert window.shape == part.shape
        assert np.abs(window - part).max() <= tolerance


def with_gap(data, container, options):
    """Return a file of sound whose part from 1 s on comes 2 s later."""
    out = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", container, options) as target:
        stream = source.streams.audio[0]
        copied = target.add_stream_from_template(stream, opaque=True)
        for packet in source.demux(stream):
            if packet.size:
                is_late = (packet.pts - stream.start_time) * stream.time_base >= 1
                shift = round(2 / stream.time_base) if is_late else 0
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                packet.stream = copied
                target.mux(packet)
    return out.getvalue()


@pytest.mark.parametrize(
    ("container", "audio", "muxer"),
    [
        ("matroska", "pcm_s16le", {}),
        ("webm", "libopus", {}),
        ("mpegts", "mp2", {}),
        ("mp4", "aac", {}),
        ("mp4", "aac", {"movflags": "empty_moov", "frag_duration": "200000"}),
    ],
)
def test_sound_after_a_gap_is_in_its_place(media, container, audio, muxer):
    rate = 48000
    data = media(3.0, container=container, codec="", audio=audio, rate=rate)
    data = with_gap(data, container, muxer)
    expected = np.zeros(6 * rate, np.float32)
    with av.open(io.BytesIO(data)) as source:
        convert = av.AudioResampler(format="fltp")
        for frame in source.decode(audio=0):
            at = round((frame.pts * frame.time_base - source.start_time / 10**6) * rate)
            [part] = convert.resample(frame)
            first = max(-at, 0)
            expected[at + first : at + part.samples] = part.to_ndarray()[0, first:]
    sound = Audio(data)
    for start in (0.2, 0.7, 3.2, 4.2):
        [window] = sound.samples(start, start + 0.2)
        # Containers round times, by up to a millisecond.
        middle = window[50:-50]
        first = round(start * rate)
        parts = (expected[first + n : first + n + len(middle)] for n in range(101))
        assert min(np.abs(part - middle).max() for part in parts) < 0.02
    assert not sound.samples(1.5, 2.5).any()
    assert sound.samples(1.5, 4.5)[0, round(1.7 * rate) :].any()


def test_properties(media):
    audio = Audio(media(2.0, container="wav", codec="", audio="pcm_s16le"))
    assert (audio.rate, audio.channels, audio.codec, audio.duration) == (8000, 1, "pcm_s16le", 2.0)
    assert repr(audio) == "<Audio: 2.00 s, 8,000 Hz, 1 channel>"
    assert repr(Audio(b"nothing")).startswith("<Audio: cannot open the file of 7 bytes")
    assert audio._repr_png_().startswith(b"\x89PNG")
    assert (pickle.loads(pickle.dumps(audio)).samples() == audio.samples()).all()


def test_windows_are_filled_with_zeros(media):
    audio = Audio(media(1.0, container="wav", codec="", audio="pcm_s16le"))
    window = audio.window(2.0)
    assert window.shape == (1, 16000)
    assert window[0, :8000].any()
    assert not window[0, 8000:].any()
    assert audio.samples(-0.5, 0.5)[0, :4000].tolist() == [0] * 4000


@pytest.mark.parametrize("kind", KINDS)
def test_parts_without_sound_are_no_damage(media, kind):
    audio = Audio(media(1.0, **{"codec": "", **KINDS[kind]}))
    rate = audio.rate
    for start in (audio.duration, audio.duration + 0.5, 100.0):
        after = audio.samples(start, start + 0.25)
        assert after.shape == (1, rate // 4)
        assert start == audio.duration or not after.any()  # codecs pad the end
        assert audio.samples(start, start + 0.25, rate=12000).shape == (1, 3000)
    for at in (0.0, 0.5, audio.duration, 2.0):
        assert audio.samples(at, at).shape == (1, 0)
        assert audio.samples(at, at + 1e-6).shape == (1, 0)


def test_windows_near_the_end_of_a_flac_file(media):
    audio = Audio(media(3.0, container="flac", codec="", audio="flac"))
    expected = audio.samples()
    for first in range(22_000, 24_000, 50):
        part = audio.samples(first / 8000, first / 8000 + 0.005)
        assert (part[:, : 24_000 - first] == expected[:, first : first + 40]).all()


def test_windows_are_resampled_in_place(media):
    audio = Audio(media(3.0, container="wav", codec="", audio="pcm_s16le"))
    whole = audio.samples(0, 3, rate=4000)
    assert whole.shape == (1, 12000)
    window = audio.samples(1.0, 1.5, rate=4000, channels=2)
    assert window.shape == (2, 2000)
    assert np.abs(window - whole[:, 4000:6000]).max() < 0.02
    seconds = np.arange(2000) / 4000 + 1.0
    at = seconds * 8000
    assert np.abs(window[0] - 0.5 * np.sin(at * 0.02 + at**2 * 1e-7)).max() < 0.03


def test_windows_of_half_a_sample_have_one_length(media):
    kind = {"codec": "", "container": "wav", "audio": "pcm_s16le"}
    starts = np.linspace(0.01, 1.4, 40).tolist()
    own, other = Audio(media(2.0, rate=22050, **kind)), Audio(media(2.0, rate=8000, **kind))
    assert {own.window(0.25, at=at).shape for at in starts} == {(1, 5512)}
    assert {other.window(0.5, 11025, at=at).shape for at in starts} == {(1, 5512)}
    files = [media(seconds, rate=8000, **kind) for seconds in (1.0, 1.1, 1.3, 1.7, 1.9)]
    sizes = np.array([len(file) for file in files])
    buffer = GatherBuffer(np.frombuffer(b"".join(files), np.uint8))
    encoding = AudioWindows(0.5, 11025, channels=1)(make("encoding", "audio"))
    assert encoding.decode_batch(buffer, np.cumsum(sizes) - sizes, sizes).shape == (5, 1, 5512)


def test_sound_of_a_video_is_in_step(media):
    video = Video(media(3.0))
    assert video.times[12] == 1.0
    at = np.arange(8000, 12000)
    sound = video.audio.samples(1.0, 1.5)[0]
    assert np.abs(sound - 0.5 * np.sin(at * 0.02 + at**2 * 1e-7)).max() < 0.1
    assert Video(media(1.0, audio=None)).audio is None


@pytest.mark.parametrize(
    ("container", "audio", "rate"),
    [("mp4", "aac", 8000), ("mov", "pcm_s16le", 8000), ("mpegts", "mp2", 48000)],
)
def test_sound_that_begins_after_the_video_is_read_to_its_end(media, container, audio, rate):
    options = {"codec": "mpeg4", "audio": audio, "rate": rate, "options": (("bf", "0"),)}
    out = io.BytesIO()
    with (
        av.open(io.BytesIO(media(2.0, container=container, **options))) as source,
        av.open(out, "w", container) as target,
    ):
        copied = [target.add_stream_from_template(s, opaque=True) for s in source.streams]
        for packet in source.demux():
            if packet.size:
                shift = 0.75 if packet.stream.type == "audio" else 0
                packet.pts += round(shift / packet.time_base)
                packet.dts += round(shift / packet.time_base)
                packet.stream = copied[packet.stream.index]
                target.mux(packet)
    sound = Audio(out.getvalue())
    assert sound.duration == pytest.approx(2.75, abs=0.02)
    assert np.abs(sound.samples()[0, -rate // 10 :]).max() > 0.3
    assert np.abs(sound.window(0.1, at=2.6)).max() > 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": None}, "seconds=None: expected a number above 0"),
        ({"seconds": 1, "rate": -1}, "rate=-1"),
        ({"seconds": 1, "rate": 8000.5}, "rate=8000.5: must be a whole number"),
        ({"seconds": 1, "channels": 3}, "channels=3"),
        ({"seconds": 1, "at": "end"}, "at='end'"),
        ({"seconds": 1, "at": "random"}, "needs rng="),
    ],
)
def test_wrong_arguments(media, arguments, message):
    audio = Audio(media(1.0, container="wav", codec="", audio="pcm_s16le"))
    with pytest.raises(ConfigError, match=message):
        audio.window(**arguments)
    with pytest.raises(ConfigError, match="two times in order"):
        audio.samples(2, 1)


@pytest.mark.parametrize("made", [AudioWindows, lambda seconds: RandomWindows("sound", seconds)])
def test_windows_need_a_length(made):
    with pytest.raises(ConfigError, match="seconds=None: expected a number above 0"):
        made(None)


def test_damaged_sound_names_the_time(media):
    data = media(20.0, container="flac", codec="", audio="flac")
    cut = Audio(data[: len(data) // 2])
    cut.samples(0, 1)
    with pytest.raises(DecodeError, match=r"at 16\.000 s: "):
        cut.samples(16.0, 16.5)
    with pytest.raises(DecodeError, match=r"at=29: the sound ends at 20\.000 s"):
        Audio(data).window(1, at=29)
    with pytest.raises(DecodeError, match="no audio stream, but video"):
        Audio(media(1.0, audio=None)).samples()


def test_damage_within_a_flac_file_is_no_silence(media):
    data = bytearray(media(40.0, container="flac", codec="", audio="flac"))
    with av.open(io.BytesIO(bytes(data))) as source:
        packets = [p for p in source.demux(audio=0) if p.size]
        first, last = (next(p for p in packets if p.pts * p.time_base >= at) for at in (16, 20))
        begin, end, rate = first.pos, last.pos, 8000
        start = first.pts / rate
    expected = Audio(bytes(data)).samples(24.0, 25.0)
    data[begin:end] = bytes(end - begin)
    for window in ((start + 0.3, start + 1.0), (start - 1, start + 1), (start - 1, start + 8)):
        # PyAV 17 also raises the errors of single packets.
        with pytest.raises(
            DecodeError, match=r"the sound cannot be decoded; the file is|Invalid data"
        ):
            Audio(bytes(data)).samples(*window)
    assert np.array_equal(Audio(bytes(data)).samples(24.0, 25.0), expected)


def noise_then_silence(container, codec, frame_size):
    """Return a file of variable bit rate without a header that says how long it is."""
    values = np.zeros(100 * frame_size, np.float32)
    values[: len(values) // 4] = np.random.default_rng(0).normal(0, 0.2, len(values) // 4)
    out = io.BytesIO()
    with av.open(out, "w", format=container, options={"write_xing": "0"}) as target:
        stream = target.add_stream(codec, rate=44100, layout="mono")
        stream.codec_context.flags |= 2  # AV_CODEC_FLAG_QSCALE
        stream.codec_context.global_quality = 472
        for at in range(0, len(values), frame_size):
            part = values[None, at : at + frame_size]
            frame = av.AudioFrame.from_ndarray(part, "fltp", "mono")
            frame.sample_rate, frame.pts = 44100, at
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize(
    ("container", "codec", "frame_size"), [("adts", "aac", 1024), ("mp3", "libmp3lame", 1152)]
)
def test_files_that_do_not_store_how_long_they_are_are_read_to_their_end(
    container, codec, frame_size
):
    # FFmpeg takes the first bit rate for that of the whole file.
    data = noise_then_silence(container, codec, frame_size)
    expected = all_samples(data)
    sound = Audio(data)
    assert sound.duration == pytest.approx(expected.shape[1] / 44100)
    assert (sound.samples() == expected).all()
    assert not sound.window(0.25, at=sound.duration - 0.25).any()


def piped(container, codec, rate, **options):
    """Return a file of 4 s of a tone that was written to a pipe, where sizes in its head stay empty."""
    out = io.BytesIO()
    sink = SimpleNamespace(write=out.write)
    at = np.arange(4 * rate)
    values = (0.5 * np.sin(at * 0.02 + at**2 * 1e-7)).astype(np.float32)[None]
    with av.open(sink, "w", format=container, options=options) as target:
        stream = target.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(values, "fltp", "mono")
        frame.sample_rate, frame.pts = rate, 0
        size = stream.codec_context.frame_size or 1024
        convert = av.AudioResampler(stream.format, stream.layout, rate, size)
        for part in [*convert.resample(frame), *convert.resample(None)]:
            target.mux(stream.encode(part))
        target.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize(
    ("container", "codec", "rate", "options"),
    [
        ("adts", "aac", 44100, {}),
        ("latm", "aac", 48000, {}),
        ("mp2", "mp2", 48000, {}),
        ("mp3", "libmp3lame", 44100, {"write_xing": "0"}),
        ("ac3", "ac3", 48000, {}),
        ("flac", "flac", 48000, {}),
        ("wav", "pcm_s16le", 48000, {}),
        ("au", "pcm_s16be", 48000, {}),
        ("webm", "libopus", 48000, {"live": "1"}),
        ("matroska", "aac", 48000, {}),
        ("flv", "aac", 44100, {}),
        ("mpegts", "aac", 48000, {}),
        ("wv", "wavpack", 48000, {}),
        ("mp4", "aac", 48000, {"movflags": "empty_moov+frag_keyframe", "frag_duration": "500000"}),
    ],
)
def test_the_duration_does_not_depend_on_what_was_read(container, codec, rate, options):
    data = piped(container, codec, rate, **options)
    expected = all_samples(data)
    seconds = expected.shape[1] / rate
    duration = Audio(data).duration
    assert duration == pytest.approx(seconds, abs=0.06)
    for start in (0.0, 1.0, 3.0):
        sound = Audio(data)
        part = sound.samples(start, start + 0.2)
        assert sound.duration == duration
        # What was read before is not affected by the length, nor what comes next.
        assert sound.samples().shape[1] == round(duration * rate)
        assert sound.duration == Audio(data).duration
        tolerance = 2e-2 if codec == "aac" else 0
        assert np.abs(sound.samples(start, start + 0.2) - part).max() <= tolerance
        assert sound.window(0.5, at=duration - 0.5).any()
    assert make("encoding", "audio").encode(data) == data


@pytest.mark.parametrize(("container", "codec"), [("mp4", "aac"), ("mov", "pcm_s16le")])
@pytest.mark.parametrize(
    "edits",
    [
        [(2.0, 0.7)],
        [(9.0, 0.7)],
        [(0.5, None), (1.5, 0.5)],
        [(0.5, None), (9.0, 0.5)],
        [(1.0, 0.5), (1.0, 1.5)],
    ],
    ids=["cut", "cut, longer than the media", "delay", "delay, longer than the media", "parts"],
)
def test_edit_lists_place_the_sound(media, container, codec, edits):
    rate = 48000
    data = set_edits(media(3.0, container=container, audio=codec, rate=rate), edits, "audio")
    expected = np.zeros(4 * rate, np.float32)
    with av.open(io.BytesIO(data)) as source:
        convert = av.AudioResampler(format="fltp")
        for frame in source.decode(audio=0):
            at = round(frame.pts * frame.time_base * rate)
            [part] = convert.resample(frame)
            first = max(-at, 0)
            expected[at + first : at + part.samples] = part.to_ndarray()[0, first:]
    duration, start = edits[-1]
    begin = sum(seconds for seconds, _ in edits[:-1])
    length = begin + min(duration, 3.0 + (codec == "aac") * 1024 / rate - start)
    sound = Audio(data)
    assert sound.duration == pytest.approx(length, abs=0.05)
    for at in (0.0, 0.4, 1.2, sound.duration - 0.3):
        window = expected[round(at * rate) : round(at * rate) + round(0.3 * rate)]
        assert np.abs(sound.samples(at, at + 0.3)[0] - window).max() < 2e-2


@pytest.mark.parametrize(("rate", "new_rate"), [(48000, 8000), (44100, 16000), (8000, 11025)])
def test_resampled_sound_is_in_step_with_that_of_the_file(rate, new_rate):
    def tone(seconds):
        return (0.5 * np.sin(2 * np.pi * 1000 * seconds)).astype(np.float32)

    out = io.BytesIO()
    with av.open(out, "w", format="wav") as target:
        stream = target.add_stream("pcm_f32le", rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone(np.arange(3 * rate) / rate)[None], "flt", "mono")
        frame.sample_rate = rate
        target.mux([*stream.encode(frame), *stream.encode(None)])
    [window] = Audio(out.getvalue()).samples(1.0, 1.5, rate=new_rate)
    assert np.abs(window - tone(1 + np.arange(len(window)) / new_rate)).max() < 1e-4


@pytest.mark.parametrize("channels", [7, 8, 9])
def test_sound_of_many_channels(channels):
    values = np.random.default_rng(0).integers(-9999, 9999, (800, channels)).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((channels, 2, 8000, 0, "NONE", ""))
        file.writeframes(values.tobytes())
    sound = Audio(out.getvalue())
    assert (sound.samples() == values.T / np.float32(32768)).all()
    assert sound.samples(rate=4000).shape == (channels, 400)
