"""Data sets from directories, from tar archives and from LeRobot's layout."""

from __future__ import annotations

import errno
import json
import tarfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from streamplug_av import RandomClips, Video, VideoClips, VideoFiles, lerobot_episodes, media_files
from streamplug_av.lerobot import cut_video
from streamplug_testing.media import set_edits

from streamplug import StreamingDataset, write_from
from streamplug.errors import ConfigError, DataError, DecodeError, StorageError


def test_directories(media, tmp_path):
    for n, name in enumerate(("a/x.mp4", "b/y.webm", "z.MP4", "b/notes.txt")):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        container = {"container": "webm", "codec": "libvpx-vp9", "audio": None}
        path.write_bytes(media(0.5, seed=n, **(container if name.endswith("webm") else {})))
    samples = media_files(tmp_path / "files")
    columns = {"path": "str", "class": "str", "video": "video"}
    write_from(samples, out=str(tmp_path / "set"), columns=columns)
    dataset = StreamingDataset(local=str(tmp_path / "set"))
    found = [(sample["path"], sample["class"], sample["video"].num_frames) for sample in dataset]
    assert sorted(found) == [("a/x.mp4", "a", 6), ("b/y.webm", "b", 6), ("z.MP4", "", 6)]
    (tmp_path / "files" / "b" / "notes.txt").unlink()
    decoders = {"data": VideoClips(2, size=(8, 8))}
    as_it_is = StreamingDataset(
        remote=str(tmp_path / "files"),
        local=str(tmp_path / "l"),
        format="folder",
        decoders=decoders,
    )
    assert {sample["data"].shape for sample in as_it_is} == {(2, 8, 8, 3)}
    with pytest.raises(ConfigError, match=r"no files that end with \.wav"):
        next(media_files(tmp_path / "files", "audio"))
    with pytest.raises(ConfigError, match="give suffixes="):
        next(media_files(tmp_path / "files", "film"))
    (tmp_path / "files" / "without").touch()
    with pytest.raises(ConfigError, match=r"suffixes='.mp4': expected a list, such as \['.mp4'\]"):
        next(media_files(tmp_path / "files", suffixes=".mp4"))
    found = media_files(tmp_path / "files", suffixes=[".MP4"])
    assert [sample["path"] for sample in found] == ["a/x.mp4", "z.MP4"]
    (tmp_path / "files" / "c.top.MP4").write_bytes(b"video")
    found = media_files(tmp_path / "files", suffixes=[".top.mp4"])
    assert [sample["path"] for sample in found] == ["c.top.MP4"]


def test_hidden_files_are_left_out_as_with_the_format_folder(tmp_path):
    for name in ("a/x.wav", "a/._x.wav", ".Trash/y.wav", "__MACOSX/a/._x.wav", "__MACOSX/z.wav"):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"sound")
    found = media_files(tmp_path / "files", "audio")
    assert list(found) == [{"path": "a/x.wav", "class": "a", "audio": b"sound"}]
    dataset = StreamingDataset(remote=str(tmp_path / "files"), format="folder", batch_size=1)
    assert [sample["path"] for sample in dataset] == ["a/x.wav"]


def test_files_that_cannot_be_read_are_errors(tmp_path, monkeypatch):
    root = tmp_path / "files"
    (root / "a").mkdir(parents=True)
    (root / "a/x.wav").write_bytes(b"sound")
    (tmp_path / "other").mkdir()
    (root / ".hidden").symlink_to(tmp_path / "other")
    assert [sample["path"] for sample in media_files(root, "audio")] == ["a/x.wav"]
    (root / "linked").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="linked is a link to a directory, which is not followed"):
        list(media_files(root, "audio"))
    (root / "linked").unlink()
    (root / "b.wav").symlink_to(tmp_path / "missing")
    with pytest.raises(StorageError, match=r"b\.wav"):
        list(media_files(root, "audio"))
    (root / "b.wav").unlink()

    def scandir(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", scandir)
    with pytest.raises(StorageError, match=r"no permission for .*files"):
        list(media_files(root, "audio"))


def test_tar_archives(media, tmp_path):
    files = [media(0.5, seed=n) for n in range(3)]
    sound = media(0.5, container="flac", codec="", audio="flac")
    samples = [{"__key__": f"{n:03d}", "mp4": data, "flac": sound} for n, data in enumerate(files)]
    columns = {"__key__": "str", "mp4": "video", "flac": "audio"}
    write_from(samples, out=str(tmp_path / "tars"), columns=columns, format="webdataset")
    with tarfile.open(tmp_path / "tars" / "shard.00000.tar") as tar:
        assert tar.getnames()[:2] == ["000.flac", "000.mp4"]
        assert tar.extractfile("001.mp4").read() == files[1]
    assert type(StreamingDataset(local=str(tmp_path / "tars"))[0]["mp4"]) is Video
    (tmp_path / "tars" / "index.json").unlink()
    # As of another writer: ours never leaves out the index.
    (tmp_path / "tars" / "shard.00000.tar").rename(tmp_path / "tars" / "videos.tar")
    archives = StreamingDataset(
        remote=str(tmp_path / "tars"), format="webdataset", decoders={"mp4": VideoFiles()}
    )
    assert (archives[2]["mp4"].clip(3) == Video(files[2]).clip(3)).all()
    raw = StreamingDataset(remote=str(tmp_path / "tars"), format="webdataset")
    write_from(iter(raw), out=str(tmp_path / "mds"), columns=columns)
    assert sorted(
        s["mp4"].file.value for s in StreamingDataset(local=str(tmp_path / "mds"))
    ) == sorted(files)


TASKS = [["Push the block."], ["Push the block.", "Go back."], ["Go back."]]


def make_lerobot(media, root, version, *, gop=2, b_frames=0, frames=54):
    """Write three episodes of 12, 18 and 24 frames, one file each or all in one of `frames` frames."""
    lengths, key = [12, 18, 24], "observation.image"
    features = {
        key: {"dtype": "video"},
        "action": {"dtype": "float32"},
        "episode_index": {"dtype": "int64"},
    }
    old = version == 2
    data_path = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    video_path = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    info = {
        "codebase_version": "v2.1" if old else "v3.0",
        "fps": 12,
        "features": features,
        "data_path": data_path
        if old
        else "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": video_path
        if old
        else "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))

    def place(path, data=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path if data is None else path.write_bytes(data)

    numbers = np.repeat(np.arange(3), lengths)
    table = pa.table(
        {"episode_index": numbers, "action": [[float(n), n / 2] for n in range(len(numbers))]}
    )
    if old:
        episodes = [
            {"episode_index": n, "length": length, "tasks": TASKS[n]}
            for n, length in enumerate(lengths)
        ]
        lines = "\n".join(map(json.dumps, episodes))
        (root / "meta" / "episodes.jsonl").write_text(lines)
        for n, length in enumerate(lengths):
            where = {"episode_chunk": 0, "episode_index": n, "video_key": key}
            parquet.write_table(table.filter(numbers == n), place(root / data_path.format(**where)))
            place(root / video_path.format(**where), media(length / 12, seed=n, audio=None))
        return
    ends = np.cumsum(lengths)
    episodes = [
        {
            "episode_index": n,
            "length": length,
            "tasks": TASKS[n],
            "data/chunk_index": 0,
            "data/file_index": 0,
            f"videos/{key}/chunk_index": 0,
            f"videos/{key}/file_index": 0,
            f"videos/{key}/from_timestamp": float(ends[n] - length) / 12,
            f"videos/{key}/to_timestamp": float(ends[n]) / 12,
        }
        for n, length in enumerate(lengths)
    ]
    listed = place(root / "meta/episodes/chunk-000/file-000.parquet")
    parquet.write_table(pa.Table.from_pylist(episodes), listed)
    parquet.write_table(table, place(root / "data/chunk-000/file-000.parquet"))
    options = (("bf", str(b_frames)),)
    data = media(frames / 12, gop=gop, audio=None, options=options)
    place(root / f"videos/{key}/chunk-000/file-000.mp4", data)


@pytest.mark.parametrize("version", [2, 3])
def test_lerobot(media, all_frames, tmp_path, version):
    make_lerobot(media, tmp_path / "robot", version)
    key = "observation.image"
    columns = {
        "episode": "int",
        "length": "int",
        "tasks": "json",
        "action": "ndarray",
        key: "video",
        f"{key}.start": "float64",
        f"{key}.stop": "float64",
    }
    episodes = lerobot_episodes(tmp_path / "robot", ["action", key])
    write_from(episodes, out=str(tmp_path / "set"), columns=columns)
    dataset = StreamingDataset(local=str(tmp_path / "set"))
    if version == 3:
        path = tmp_path / f"robot/videos/{key}/chunk-000/file-000.mp4"
        whole = all_frames(path.read_bytes())
    first = 0
    for n, length in enumerate((12, 18, 24)):
        sample = dataset[n]
        assert (sample["episode"], sample["length"], sample["tasks"]) == (n, length, TASKS[n])
        assert (sample["action"][:, 0] == first + np.arange(length)).all()
        video, start = sample[key], sample[f"{key}.start"]
        assert sample[f"{key}.stop"] - start == pytest.approx(length / 12)
        assert video.num_frames == length
        frames = video.frames(times=start + np.arange(length) / 12)
        expected = whole[first : first + length] if version == 3 else video.clip(length)
        assert (frames == expected).all()
        first += length


@pytest.mark.parametrize(
    ("drift", "last"), [(0, 0), (3e-4, 0), (-3e-4, 0), (0, -1 / 12), (0, 1 / 12)]
)
def test_videos_of_lerobot_have_the_frames_of_their_episode(
    media, all_frames, tmp_path, drift, last
):
    make_lerobot(media, tmp_path, 3, gop=20, b_frames=2)
    [path] = (tmp_path / "meta/episodes").rglob("*.parquet")
    rows = parquet.read_table(path).to_pylist()
    for row in rows:
        row["videos/observation.image/from_timestamp"] += drift
        row["videos/observation.image/to_timestamp"] += drift + last
    parquet.write_table(pa.Table.from_pylist(rows), path)
    [path] = (tmp_path / "videos").rglob("*.mp4")
    whole, first = all_frames(path.read_bytes()), 0
    for sample, length in zip(lerobot_episodes(tmp_path), (12, 18, 24)):
        video = Video(sample["observation.image"])
        assert video.num_frames == length
        assert sample["observation.image.start"] == 0
        expected = whole[first : first + length]
        assert (video.frames(indices=np.arange(length)) == expected).all()
        for seed in range(10):
            clip = RandomClips("video", 8)({"video": video}, np.random.default_rng(seed))["video"]
            assert any((clip == expected[at : at + 8]).all() for at in range(length - 7))
        first += length


def test_a_video_of_lerobot_that_is_shorter_than_its_episode(media, tmp_path):
    make_lerobot(media, tmp_path, 3, frames=50)
    episodes = lerobot_episodes(tmp_path)
    assert [next(episodes)["episode"] for _ in range(2)] == [0, 1]
    message = r"file-000\.mp4: episode 2 has 24 frames, but the video 20 from 2\.500 to 4\.500 s"
    with pytest.raises(DataError, match=message):
        next(episodes)
    assert len(list(lerobot_episodes(tmp_path, cut=False))) == 3
    make_lerobot(media, tmp_path / "shorter", 3, frames=12)
    message = r"file-000\.mp4: episode 1: the file has no frames from 1\.000 to 2\.500 s"
    with pytest.raises(DecodeError, match=message):
        list(lerobot_episodes(tmp_path / "shorter"))


def test_a_video_of_lerobot_with_more_frames_than_its_episode(media, tmp_path):
    make_lerobot(media, tmp_path, 3)
    path = tmp_path / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fps": 6}))
    message = r"file-000\.mp4: episode 0 has 12 frames, but the video 24 from 0\.000 to 2\.000 s"
    with pytest.raises(DataError, match=message):
        list(lerobot_episodes(tmp_path))
    assert len(list(lerobot_episodes(tmp_path, cut=False))) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "libsvtav1", "options": (("preset", "12"), ("svtav1-params", "keyint=4"))},
        {"muxer": (("output_ts_offset", "1.5"),)},
        {"options": (("x264-params", "open-gop=1:bframes=3:b-adapt=0"),)},
        {"codec": "mpeg4", "options": (("bf", "2"),)},
    ],
)
def test_cuts_have_the_frames_of_their_range(media, all_frames, options):
    data = media(2.0, gop=4, audio=None, **options)
    expected = all_frames(data)
    for first, last in ((0, 4), (7, 12), (9, 24)):
        cut, begin, count = cut_video(data, first / 12, last / 12)
        video = Video(cut)
        assert begin == pytest.approx(first / 12)
        assert video.num_frames == count == last - first
        np.testing.assert_allclose(video.times, np.arange(count) / 12, atol=1e-4)
        assert (video.frames(times=np.arange(count) / 12) == expected[first:last]).all()
        # Other programs find the same frames.
        assert (all_frames(cut) == expected[first:last]).all()
    with pytest.raises(DecodeError, match=r"no frames from -1\.000 to -0\.500 s"):
        cut_video(data, -1.0, -0.5)


def test_cuts_of_a_file_with_an_edit_list(media, all_frames):
    data = media(4.0, audio=None)
    expected = all_frames(data)
    again, begin, count = cut_video(cut_video(data, 7 / 12, 41 / 12)[0], 3 / 12, 11 / 12)
    assert (begin, count) == (pytest.approx(3 / 12), 8)
    assert (Video(again).clip(8) == expected[10:18]).all()
    with pytest.raises(DecodeError, match="whose edit list has several parts cannot be cut"):
        cut_video(set_edits(data, [(1.0, 0.5), (1.0, 2.5)]), 0.0, 1.5)


def test_features_keep_their_dtype(media, tmp_path):
    make_lerobot(media, tmp_path / "robot", 3)
    path = tmp_path / "robot/data/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    count = len(table)
    columns = {
        "action": pa.array([[n / 3, -n] for n in range(count)], pa.list_(pa.float32())),
        "state": pa.array([[n, 1] for n in range(count)], pa.list_(pa.uint8(), 2)),
        "image": pa.array([[[n, n + 0.5]] for n in range(count)], pa.list_(pa.list_(pa.float32()))),
        "reward": pa.array(np.arange(count) / 7, pa.float32()),
        "done": pa.array([n % 2 > 0 for n in range(count)]),
        "task_index": pa.array(range(count), pa.int64()),
        "hash": pa.array([2**63 + 1 if n % 2 else n for n in range(count)], pa.uint64()),
        "empty": pa.array([None] * count, pa.float32()),
    }
    parquet.write_table(pa.table({"episode_index": table["episode_index"], **columns}), path)
    info = json.loads((tmp_path / "robot/meta/info.json").read_text())
    info["features"] = {name: {"dtype": "float32"} for name in columns}
    (tmp_path / "robot/meta/info.json").write_text(json.dumps(info))
    sample = list(lerobot_episodes(tmp_path / "robot"))[1]
    expected = {
        "action": ((18, 2), np.float32),
        "state": ((18, 2), np.uint8),
        "image": ((18, 1, 2), np.float32),
        "reward": ((18,), np.float32),
        "done": ((18,), np.bool_),
        "task_index": ((18,), np.int64),
        "hash": ((18,), np.uint64),
    }
    for name, (shape, dtype) in expected.items():
        assert (sample[name].shape, sample[name].dtype) == (shape, dtype), name
        assert sample[name].tolist() == columns[name][12:30].to_pylist()
    assert sample["empty"] == [None] * 18


def test_features_of_an_extension_type_keep_their_dtype(media, tmp_path):
    class Array2D(pa.ExtensionType):
        """As that of the package datasets, which is registered where it is imported."""

        def __init__(self):
            self.value_type = "float32"
            super().__init__(pa.list_(pa.list_(pa.float32())), "test.Array2D")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls()

    make_lerobot(media, tmp_path / "robot", 3)
    path = tmp_path / "robot/data/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    values = pa.array([[[n, n + 0.5]] for n in range(len(table))], Array2D().storage_type)
    info = json.loads((tmp_path / "robot/meta/info.json").read_text())
    info["features"] = {"image": {"dtype": "float32"}}
    (tmp_path / "robot/meta/info.json").write_text(json.dumps(info))
    pa.register_extension_type(Array2D())
    try:
        image = pa.ExtensionArray.from_storage(Array2D(), values)
        parquet.write_table(
            pa.table({"episode_index": table["episode_index"], "image": image}), path
        )
        sample = list(lerobot_episodes(tmp_path / "robot"))[1]
    finally:
        pa.unregister_extension_type("test.Array2D")
    assert (sample["image"].shape, sample["image"].dtype) == ((18, 1, 2), np.float32)


def test_chunks_of_a_data_set_have_its_own_size(media, tmp_path):
    make_lerobot(media, tmp_path / "robot", 2)
    path = tmp_path / "robot" / "meta" / "info.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "chunks_size": 2}))
    for kind in ("data", "videos"):
        chunks = tmp_path / "robot" / kind
        for file in chunks.rglob("*_000002.*"):
            moved = chunks / "chunk-001" / file.relative_to(chunks / "chunk-000")
            moved.parent.mkdir(parents=True)
            file.rename(moved)
    assert [sample["length"] for sample in lerobot_episodes(tmp_path / "robot")] == [12, 18, 24]
    path.write_text(json.dumps({**info, "chunks_size": 0}))
    with pytest.raises(DataError, match=r"meta/info\.json is damaged: ZeroDivisionError"):
        next(lerobot_episodes(tmp_path / "robot"))


def test_lerobot_errors(media, tmp_path):
    with pytest.raises(ConfigError, match="no data set of LeRobot"):
        next(lerobot_episodes(tmp_path))
    make_lerobot(media, tmp_path / "robot", 2)
    with pytest.raises(ConfigError, match=r"columns=\['state'\]: the data set has"):
        next(lerobot_episodes(tmp_path / "robot", ["state"]))
    path = tmp_path / "robot" / "meta" / "info.json"
    info = json.loads(path.read_text())
    for name in ("length", "observation.image.stop"):
        features = {**info["features"], name: {"dtype": "float32"}}
        path.write_text(json.dumps({**info, "features": features}))
        with pytest.raises(ConfigError, match=rf"features \['{name}'\] have the names of columns"):
            next(lerobot_episodes(tmp_path / "robot"))
        assert next(lerobot_episodes(tmp_path / "robot", ["action"]))["length"] == 12
    path.write_text(json.dumps(info))
    with pytest.raises(
        ConfigError, match=r"columns='action': expected a list, such as \['action'\]"
    ):
        next(lerobot_episodes(tmp_path / "robot", "action"))
    listed = tmp_path / "robot" / "meta" / "episodes.jsonl"
    lines = listed.read_text()
    listed.write_text(lines.replace('["Push the block."]', '"Push"', 1))
    with pytest.raises(DataError, match=r"episodes\.jsonl: line 1: tasks='Push': expected a list"):
        next(lerobot_episodes(tmp_path / "robot"))
    listed.write_text(lines.replace('"length": 12', '"length": 13'))
    with pytest.raises(DataError, match=r"episode 0 has 13 frames .* and 12 in its file"):
        next(lerobot_episodes(tmp_path / "robot"))
    listed.unlink()
    with pytest.raises(ConfigError, match=r"version v2\.1: no meta/episodes"):
        next(lerobot_episodes(tmp_path / "robot"))


@pytest.mark.parametrize("field", ["data_path", "video_path"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("../secret.mp4", "not a relative path inside"),
        ("/etc/passwd", "not a relative path inside"),
        ("{video_key}/../../../secret.mp4", "not a relative path inside"),
        ("{episode_index:>2000000000}.mp4", "no pattern of file names"),
        ("{episode_index.__class__}.mp4", "no pattern of file names"),
        (5, "no pattern of file names"),
    ],
)
def test_lerobot_reads_no_files_elsewhere(media, tmp_path, field, pattern, message):
    make_lerobot(media, tmp_path / "robot", 2)
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    path = tmp_path / "robot" / "meta" / "info.json"
    info = {**json.loads(path.read_text()), field: pattern}
    path.write_text(json.dumps(info))
    with pytest.raises(DataError, match=message):
        next(lerobot_episodes(tmp_path / "robot"))
