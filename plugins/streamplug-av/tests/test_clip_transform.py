"""Random clips: the same on any world, with any workers, and after a resume."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from streamplug_av import AudioFiles, RandomClips, RandomWindows, Video

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World, sample_rng
from streamplug.errors import ConfigError, DecodeError

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
CLIPS = RandomClips("video", 4, 2, (24, 32), audio="sound", rate=8000, channels=1)


@pytest.fixture(scope="module")
def remote(media, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("random") / "set")
    with MDSWriter(out=folder, columns={"id": "int", "video": "video"}) as out:
        for n in range(24):
            out.write({"id": n, "video": media(2.0, seed=n % 8)})
    return folder


def loader(remote, ranks=1, rank=0, workers=0, access="shard", **options):
    dataset = StreamingDataset(
        remote=remote,
        shuffle=True,
        batch_size=6 // ranks,
        world=World(ranks_per_node=ranks, rank=rank),
        access=access,
    )
    return StreamingDataLoader(dataset, transform=CLIPS, num_workers=workers, **options)


def contents(*batches):
    return {
        n: (video.numpy().tobytes(), sound.numpy().tobytes())
        for batch in batches
        for n, video, sound in zip(batch["id"].tolist(), batch["video"], batch["sound"])
    }


def test_same_on_any_world_and_after_a_resume(remote):
    alone = loader(remote)
    expected = []
    for step, batch in enumerate(alone):
        assert batch["video"].shape == (6, 4, 24, 32, 3)
        assert batch["sound"].shape == (6, 1, round(7 / 12 * 8000))
        expected.append(contents(batch))
        if step == 1:
            state = alone.state_dict()
    second = [contents(batch) for batch in alone]
    assert second[0].keys() != expected[0].keys() or second != expected
    ranks = [loader(remote, 2, rank, access="range") for rank in range(2)]
    for one in ranks:
        one.load_state_dict(state)
    for step, batches in enumerate(zip(*ranks), 2):
        assert contents(*batches) == expected[step]


@pytest.mark.parametrize("method", ["fork", "spawn"] if SOAK else ["fork"])
def test_same_in_workers(remote, method):
    # Clips are made in workers: videos themselves do not travel.
    expected = [contents(batch) for batch in loader(remote)]
    workers = loader(remote, workers=2, multiprocessing_context=method, access="range")
    assert [contents(batch) for batch in workers] == expected


def test_sound_is_in_step(remote):
    sample = StreamingDataset(remote=remote)[3]
    rng = sample_rng(9176, 0, 1, 3)
    numbers = sample["video"].clip_indices(4, 2, "random", sample_rng(9176, 0, 1, 3))
    start = sample["video"].times[numbers[0]]
    clip = CLIPS(sample, rng)
    assert (clip["sound"] == sample["video"].audio.samples(start, start + 7 / 12)).all()
    assert (clip["video"] == sample["video"].frames(indices=numbers, size=(24, 32))).all()


def test_random_windows(remote):
    dataset = StreamingDataset(remote=remote, decoders={"video": AudioFiles()})
    windows = RandomWindows("video", 0.25)
    first, again, other = (windows(dataset[0], sample_rng(1, 0, s, 0))["video"] for s in (0, 0, 1))
    assert first.shape == (1, 2000)
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 8000}, "rate=8000, channels=None: they are of the sound; give .* audio="),
        ({"channels": 1}, "rate=None, channels=1: they are of the sound; give .* audio="),
        ({"audio": "video"}, "audio='video' is the column of the videos"),
    ],
)
def test_options_of_sound_need_a_column_for_it(options, message):
    with pytest.raises(ConfigError, match=message):
        RandomClips("video", 4, **options)


def test_errors_name_the_sample_and_the_time(media):
    data = media(4.0, muxer=(("movflags", "faststart"),))
    rng = sample_rng(9176, 2, 7, 160)
    with pytest.raises(
        DecodeError, match=r"epoch 2, step 7, sample 160, column 'video': at \d\.\d+ s"
    ):
        RandomClips("video", 40)({"video": Video(data[: len(data) // 2])}, rng)
    silent = {"video": Video(media(1.0, audio=None))}
    with pytest.raises(ConfigError, match="audio='text': the sample has a column of that name"):
        RandomClips("video", 4, audio="text")({**silent, "text": "a"}, np.random.default_rng(0))
    with pytest.raises(DecodeError, match=r"^column 'video': at \d.\d+ s: the file has no audio"):
        RandomClips("video", 4, audio="sound")(silent, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"expected Video, got bytes.*VideoFiles\(\)"):
        RandomClips("video", 4)({"video": data}, rng)
    assert pickle.loads(pickle.dumps(CLIPS)) == CLIPS
