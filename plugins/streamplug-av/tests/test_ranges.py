"""Clips by range: which bytes are fetched, and that the frames are those of the whole file."""

from __future__ import annotations

import io
import os
import pickle
import random

import av
import numpy as np
import pytest
from streamplug_av import AudioWindows, Video, VideoClips, value_file
from streamplug_testing.media import set_edits

from streamplug import Callback, MDSWriter, StreamingDataset
from streamplug.errors import DecodeError, StorageError
from streamplug.interfaces import RangesRead, StoredRange

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
FRONT = (("movflags", "faststart"),)


class Traffic(Callback):
    """Counts what is fetched."""

    def __init__(self):
        self.bytes = self.requests = 0

    def on_event(self, event, world):
        if isinstance(event, RangesRead):
            self.bytes += event.bytes
            self.requests += event.requests


def needed(data, first, last):
    """Return the bytes of the groups of pictures that hold two times, with their sound, and of the index."""
    with av.open(io.BytesIO(data)) as source:
        stream = source.streams.video[0]
        entries = list(stream.index_entries)
        keys = [n for n, entry in enumerate(entries) if entry.is_keyframe]
        ticks = [int(at / stream.time_base) for at in (first, last)]
        groups = [max(n for n in keys if entries[n].timestamp <= at) for at in ticks]
        ends = [entries[n].pos for n in keys if n > groups[1]]
        stop = min(ends, default=entries[-1].pos + entries[-1].size)
        size = stop - entries[groups[0]].pos  # entries are gone when the file is closed
    start, end = data.index(b"moov") - 4, data.index(b"moov") - 4
    end += int.from_bytes(data[start : start + 4], "big")
    return size, end - start


def write(folder, *files, **options):
    columns = {"id": "int", "caption": "str", "video": "video"}
    with MDSWriter(out=str(folder), columns=columns, **options) as out:
        for n, data in enumerate(files):
            out.write({"id": n, "caption": f"clip {n}", "video": data})
    return str(folder)


@pytest.fixture(scope="module", params=[("front", 10 if SOAK else 4), ("end", 3)], ids=str)
def long_set(request, media, tmp_path_factory):
    place, minutes = request.param
    muxer = FRONT if place == "front" else ()
    data = media(
        60.0 * minutes,
        fps=8,
        gop=24,
        muxer=muxer,
        size=(128, 96),
        options=(("preset", "ultrafast"), ("crf", "8")),
    )
    return data, write(tmp_path_factory.mktemp(place), data, data)


def test_clip_of_a_long_video_fetches_little(long_set):
    data, remote = long_set
    whole = Video(data)
    for share in (0.0, 0.21, 0.5, 0.98):
        at = share * whole.duration
        traffic = Traffic()
        dataset = StreamingDataset(
            remote=remote,
            access="range",
            callbacks=[traffic],
            decoders={"video": VideoClips(16, 2, at)},
        )
        sample = dataset[1]
        assert (sample["id"], sample["caption"]) == (1, "clip 1")
        assert (sample["video"] == whole.clip(16, 2, at)).all()
        groups, index = needed(data, at, at + 31 / 8)

        assert traffic.bytes <= 1.3 * (groups + index)
        assert traffic.requests <= 12


@pytest.mark.parametrize(
    "muxer",
    [(("use_editlist", "0"),), (("movflags", "frag_keyframe+empty_moov"),)],
    ids=["no edit list", "fragments"],
)
def test_times_count_from_the_same_begin_by_range(tmp_path, media, muxer):
    # The first frame is shown after the begin of the sound.
    data = media(3.0, muxer=muxer, options=(("bf", "2"),))
    expected = Video(data)
    assert expected.times[0] > 0.1
    video = StreamingDataset(remote=write(tmp_path, data), access="range")[0]["video"]
    assert np.allclose(video.times, expected.times, atol=1e-6)
    times = [0.5, 1.0, 2.3]
    assert (video.frames(times=times) == expected.frames(times=times)).all()
    assert video.audio.duration == pytest.approx(expected.audio.duration)
    sound = video.audio.samples(1.0, 1.5)
    assert np.allclose(sound, expected.audio.samples(1.0, 1.5), atol=1e-4)


def test_clips_of_an_edit_list_fetch_little(media, tmp_path):
    options = (("preset", "ultrafast"), ("crf", "8"))
    data = media(180.0, fps=8, gop=24, size=(128, 96), options=options)
    data = set_edits(data, [(0.5, None), (90.0, 1.3), (50.0, 120.1)])
    expected = Video(data)
    assert expected.num_frames == 90 * 8 + 50 * 8
    remote = write(tmp_path, data)
    for at in (0.5, 60.0, 110.0):
        traffic = Traffic()
        dataset = StreamingDataset(remote=remote, access="range", callbacks=[traffic])
        video = dataset[0]["video"]
        assert (video.clip(16, 2, at) == expected.clip(16, 2, at)).all()
        # FFmpeg rounds the begin of such a file to microseconds.
        assert np.allclose(video.times, expected.times, atol=1e-6)
        groups, index = needed(data, at, at + 31 / 8)
        assert traffic.bytes <= 1.5 * (groups + index)
        assert traffic.requests <= 12


def test_index_is_read_once(long_set):
    data, remote = long_set
    traffic = Traffic()
    dataset = StreamingDataset(remote=remote, access="range", callbacks=[traffic])
    video = dataset[0]["video"]
    opened = traffic.bytes
    assert opened < 2000
    expected = Video(data)
    for at in (10.0, 150.0, 10.0):
        assert (video.clip(16, 2, at) == expected.clip(16, 2, at)).all()
    groups = sum(needed(data, at, at + 31 / 8)[0] for at in (10.0, 150.0))
    assert traffic.bytes <= 1.3 * (groups + needed(data, 0, 0)[1])
    before = traffic.bytes
    sound = video.audio.samples(100.0, 104.0)
    assert np.allclose(sound, expected.audio.samples(100.0, 104.0), atol=1e-4)
    assert traffic.bytes - before < 200_000
    again = pickle.loads(pickle.dumps(video))
    assert (again.clip(4, at=77.0) == expected.clip(4, at=77.0)).all()


def test_batches_and_windows(media, tmp_path):
    files = [media(2.0, seed=n) for n in range(6)]
    remote = write(tmp_path / "set", *files, max_samples_per_shard=4)
    decoders = {"video": AudioWindows(0.5, at=0.25)}
    for access in ("range", "shard"):
        dataset = StreamingDataset(
            remote=remote, access=access, batch_size=3, shuffle=True, decoders=decoders
        )
        batches = list(dataset.batches())
        assert [len(batch["video"]) for batch in batches] == [3, 3]
        for n, window in ((n, w) for b in batches for n, w in zip(b["id"], b["video"])):
            assert (window == Video(files[n]).audio.samples(0.25, 0.75)).all()


@pytest.mark.parametrize("container", ["webm", "matroska", "mpegts"])
def test_other_containers(media, tmp_path, container):
    codecs = {"codec": "libvpx-vp9", "audio": "libopus", "rate": 48000}
    data = media(2.0, container=container, **(codecs if container == "webm" else {}))
    dataset = StreamingDataset(remote=write(tmp_path / "set", data), access="range")
    assert (dataset[0]["video"].clip(5, 3) == Video(data).clip(5, 3)).all()


def test_damaged_sample_is_named_and_substituted(media, tmp_path):
    files = [media(4.0, seed=n, muxer=FRONT) for n in range(8)]
    remote = write(tmp_path / "set", *files)
    path = tmp_path / "set" / "shard.00000.mds"
    content = path.read_bytes()
    with av.open(io.BytesIO(files[5])) as source:
        key = [e for e in source.streams.video[0].index_entries if e.is_keyframe][2]
        at, size = content.index(files[5]) + key.pos, key.size
    path.write_bytes(content[: at + 5] + bytes(size - 5) + content[at + size :])
    decoders = {"video": VideoClips(4, at=2.0, size=(24, 32))}
    for access in ("range", "shard"):
        dataset = StreamingDataset(remote=remote, access=access, batch_size=8, decoders=decoders)
        with pytest.raises(DecodeError, match=r"sample 5, column 'video': at 2\.\d+ s"):
            list(dataset.batches())
        dataset = StreamingDataset(
            remote=remote, access=access, batch_size=8, decoders=decoders, on_error="substitute"
        )
        [batch] = dataset.batches()
        assert batch["id"].tolist() == [0, 1, 2, 3, 4, 1, 6, 7]
        assert batch["video"].shape == (8, 4, 24, 32, 3)


def test_lost_shard_is_no_decode_error(media, tmp_path):
    remote = write(tmp_path / "set", media(2.0))
    dataset = StreamingDataset(remote=remote, access="range", download_retry=0)
    video = dataset[0]["video"]
    (tmp_path / "set" / "shard.00000.mds").unlink()
    with pytest.raises(StorageError):
        video.clip(2)


def test_compressed_shards_are_read_whole(media, tmp_path):
    data = media(2.0)
    remote = write(tmp_path / "set", data, compression="gz")
    dataset = StreamingDataset(remote=remote, local=str(tmp_path / "local"))
    assert (dataset[0]["video"].clip(4) == Video(data).clip(4)).all()


def test_parts_are_those_of_the_value_whatever_is_kept(monkeypatch):
    """Random programs, of which the ranges of one call overlap."""
    monkeypatch.setattr(value_file, "_MAX_CACHED_BYTES", 500)
    monkeypatch.setattr(value_file, "_MIN_READ_BYTES", 16)
    stored = np.arange(3000, dtype=np.uint16).view(np.uint8)[:3000]
    data = stored.tobytes()

    def read_ranges(ranges):
        return [stored[start:stop] for start, stop in ranges.tolist()]

    for seed in range(40):
        rng = random.Random(seed)
        file = value_file.ValueFile(StoredRange(read_ranges, 0, len(data)))
        for _ in range(100):
            starts = sorted(rng.choices(range(len(data)), k=3))
            file.fetch([(start, min(start + rng.randint(1, 300), 3000)) for start in starts * 2])
            at, size = rng.randrange(len(data)), rng.randint(1, 300)
            assert file.read_at(at, size) == data[at : at + size]
