"""Damaged files of video and sound: where they are read, in transforms, and by `verify`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from streamplug_av import AudioFiles, RandomClips, RandomWindows, VideoFiles
from streamplug_tools.verification import verify

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streamplug.errors import DecodeError

SIZE, BAD = 12, 5
PLACE = rf"shard 1 \(.*\): sample {BAD - 4}, column 'media': "


@pytest.fixture(scope="module", params=["video", "audio"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(media, kind, tmp_path_factory):
    codec = "libx264" if kind == "video" else ""
    file = media(4.0, codec=codec, muxer=(("movflags", "faststart"),))
    folder = str(tmp_path_factory.mktemp(kind) / "set")
    columns = {"n": "int", "media": kind}
    with MDSWriter(out=folder, columns=columns, max_samples_per_shard=4) as out:
        for n in range(SIZE):
            out.write({"n": n, "media": file[: len(file) // 2] if n == BAD else file})
    return folder


def last(value):
    """Return what is at the end."""
    return value.frames(indices=[-1]) if hasattr(value, "frames") else value.samples(3.5, 4.0)


@pytest.mark.parametrize("access", ["shard", "range"])
def test_an_error_names_the_place(folder, access):
    dataset = StreamingDataset(remote=folder, access=access, batch_size=SIZE)
    batch = next(dataset.batches())["media"]
    for value in (dataset[BAD]["media"], dataset[[BAD]][0]["media"], batch[BAD]):
        for _ in range(2):
            with pytest.raises(DecodeError, match=rf"^{PLACE}at \d\.\d+ s"):
                last(value)
        with pytest.raises(DecodeError, match=rf"^{PLACE}at"):
            last(pickle.loads(pickle.dumps(value)))
    last(dataset[0]["media"])


def test_the_sound_of_a_video_has_its_place(folder, kind):
    if kind == "video":
        value = StreamingDataset(remote=folder)[BAD]["media"]
        with pytest.raises(DecodeError, match=rf"^{PLACE}at"):
            last(value.audio)


def test_files_that_are_bytes_have_one_too(media, tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"media": "bytes"}) as out:
        out.write({"media": b"nothing"})
    for decoder, read in ((VideoFiles(), lambda v: v.num_frames), (AudioFiles(), lambda v: v.rate)):
        value = StreamingDataset(local=str(tmp_path / "set"), decoders={"media": decoder})[0]
        with pytest.raises(DecodeError, match="sample 0, column 'media': cannot open the file"):
            read(value["media"])
        assert "sample 0, column 'media'" in repr(value["media"])


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_transform_cannot_decode_is_substituted(folder, kind, workers):
    whole = RandomClips("media", 48) if kind == "video" else RandomWindows("media", 4.0)
    dataset = StreamingDataset(local=folder, batch_size=4)
    with pytest.raises(DecodeError, match=rf"epoch 0, step 1, sample {BAD}, {PLACE}at"):
        list(StreamingDataLoader(dataset, transform=whole))
    dataset = StreamingDataset(local=folder, batch_size=4, on_error="substitute", max_errors=1)
    loader = StreamingDataLoader(dataset, transform=whole, num_workers=workers)
    numbers = np.concatenate([batch["n"] for batch in loader]).tolist()
    assert len(numbers) == SIZE
    assert set(numbers) == set(range(SIZE)) - {BAD}


def test_verify_decodes_all(folder):
    [problem] = verify(Stream(remote=folder)).problems
    assert (problem.shard, problem.index) == (1, BAD - 4)
    assert "column 'media': at " in problem.error
